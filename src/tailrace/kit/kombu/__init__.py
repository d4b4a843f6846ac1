"""A transport for kombu, and so for Celery: tasks in topics of Tailrace, or of any Kafka with share groups.

    import tailrace.kit.kombu                       # makes the scheme known

    app = Celery("shop", broker="tailrace://127.0.0.1:9092")

A queue is a topic with a share group. It needs the extra `celery`.
"""

from kombu.transport import TRANSPORT_ALIASES

from tailrace.kit.kombu.transport import Transport

__all__ = ["Transport"]

TRANSPORT_ALIASES["tailrace"] = "tailrace.kit.kombu.transport:Transport"
