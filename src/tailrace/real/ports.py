"""The real world as one bundle of ports."""

from tailrace.model.ports import Ports
from tailrace.real.background import RealBackground
from tailrace.real.clock import RealClock
from tailrace.real.disk import RealDisk
from tailrace.real.memory import RealMemory
from tailrace.real.metrics.process import RealProcess
from tailrace.real.network import RealNetwork
from tailrace.real.objects.port import RealObjectStores
from tailrace.real.random import RealRandom
from tailrace.real.tls.port import RealTls
from tailrace.real.web import RealWeb


def real_ports() -> Ports:
    return Ports(
        clock=RealClock(),
        random=RealRandom(),
        disk=RealDisk(),
        network=RealNetwork(),
        background=RealBackground(),
        memory=RealMemory(),
        process=RealProcess(),
        tls=RealTls(),
        web=RealWeb(),
        objects=RealObjectStores(),
    )
