"""Groups whose clients are replaced one by one, or at random, by those of the other protocol."""

from random import Random

import pytest

from tests.unit.coordinator.migration.scene import (
    REBALANCE_MS,
    ClassicClient,
    Client,
    ConsumerClient,
    Scene,
    run,
    settle,
)


def classic_group(scene: Scene, count: int, *, is_cooperative: bool) -> list[Client]:
    clients: list[Client] = [ClassicClient(scene, is_cooperative=is_cooperative) for _ in range(count)]
    settle(scene, clients)
    assert scene.type == "classic"
    return clients


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_a_rolling_change_to_the_consumer_protocol_and_back(is_cooperative: bool) -> None:
    scene = Scene()
    clients = classic_group(scene, 3, is_cooperative=is_cooperative)
    for place in range(3):
        clients[place].leave()
        clients[place] = ConsumerClient(scene, f"c{place}")
        settle(scene, clients)
        assert scene.type == "consumer"
    for place in range(3):
        clients[place].leave()
        clients[place] = ClassicClient(scene, is_cooperative=is_cooperative)
        settle(scene, clients)
    assert scene.type == "classic"


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_clients_of_the_other_protocol_beside_the_old_ones(is_cooperative: bool) -> None:
    scene = Scene()
    clients = classic_group(scene, 2, is_cooperative=is_cooperative)
    clients += [ConsumerClient(scene, "c1"), ConsumerClient(scene, "c2")]
    settle(scene, clients)
    clients.append(ClassicClient(scene, is_cooperative=is_cooperative))
    settle(scene, clients)
    assert scene.type == "consumer"
    for place in (3, 2):
        clients.pop(place).leave()
        settle(scene, clients)
    assert scene.type == "classic"


@pytest.mark.parametrize("seed", range(12))
def test_clients_that_come_and_go_at_random(seed: int) -> None:
    random = Random(seed)
    scene = Scene()
    is_cooperative = bool(seed % 2)
    clients: list[Client] = []
    for number in range(20):
        instance_id = random.choice([None, "i", "j"])
        if any(client.instance_id == instance_id for client in clients):
            instance_id = None
        match random.choice(["classic", "consumer", "leave", "leave", "die", "fail over", "grow", "wait"]):
            case "classic":
                clients.append(ClassicClient(scene, is_cooperative=is_cooperative, instance_id=instance_id))
            case "consumer":
                clients.append(ConsumerClient(scene, f"c{number}", instance_id))
            case "grow":
                scene.set_topics({"t": len(scene.image.topics["t"].partitions) + 1})
            case "leave" if clients:
                client = clients.pop(random.randrange(len(clients)))
                if client.is_settled:
                    client.leave()
            case "die" if clients:
                clients.pop(random.randrange(len(clients)))
            case "fail over":
                scene.fail_over()
                for client in clients:
                    client.lose_connection()
            case _:
                run(scene, clients, 5)
        random.shuffle(clients)
        run(scene, clients, random.randint(0, 3))
    clients.append(ConsumerClient(scene, "last") if seed % 3 else ClassicClient(scene, is_cooperative=is_cooperative))
    # Longer than a client that died is waited for.
    run(scene, clients, 2 * REBALANCE_MS // 1000)
    settle(scene, clients)
