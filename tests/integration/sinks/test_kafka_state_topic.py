"""The topic of positions as a check and ``cdc init`` see it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateAclsRequest
from pydantic import SecretStr

from cdc.errors import SinkDenied, SinkUncertain
from cdc.finding import Status
from cdc.local import Listener
from cdc.sinks import Kept
from cdc.sinks.kafka_positions import KafkaPositions
from tests.kafka_events import options
from tests.kafka_security import PASSWORD, USER, security_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc.finding import Finding
    from cdc.local import LocalKafka
    from tests.certificates import Certificate
    from tests.kafka_records import Topics
    from tests.kafka_security import KafkaSecurity

pytestmark = pytest.mark.kafka

TOPIC_RESOURCE, LITERAL, ALLOW = 2, 3, 3
READ, WRITE, DESCRIBE = 3, 4, 8


async def found(store: KafkaPositions) -> Finding:
    async with asyncio.timeout(20):
        (one,) = await store.check()
    assert bool(one.remedy) is (one.status is not Status.OK), one
    assert "\n" not in one.detail + one.remedy
    return one


async def configs_of(servers: str, topic: str) -> dict[str, str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = await admin.describe_configs([resource])
    finally:
        await admin.close()
    ((_code, _message, _kind, _name, entries),) = answer.resources
    return {entry[0]: entry[1] for entry in entries}


@pytest.mark.usefixtures("topics")
async def test_the_topic_is_made_compacted_with_one_partition_and_left_alone_then(
    kafka: Any, topic: str
) -> None:
    servers = kafka.bootstrap_servers
    store = KafkaPositions(options(servers), topic)

    made = await store.make()

    assert made == [f"topic {topic} (compacted, 1 replicas)"]
    configs = await configs_of(servers, topic)
    assert configs["cleanup.policy"] == "compact"
    assert configs["segment.bytes"] == str(16 << 20)
    assert configs["segment.ms"] == "3600000"
    assert configs["min.cleanable.dirty.ratio"] == "0.1"
    assert (await found(store)).status is Status.OK
    assert await store.make() == []


async def test_a_topic_can_be_written_and_read_as_soon_as_it_is_made(
    kafka: Any, topics: Topics, topic: str
) -> None:
    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as store:
        await store.make()
        await store.write(Kept("shop", 1, b"{}"))
        assert await store.read("shop") == Kept("shop", 1, b"{}")
    assert await topics.names() == [topic]


async def test_two_that_make_the_topic_at_once_make_one_and_neither_fails(
    kafka: Any, topics: Topics, topic: str
) -> None:
    stores = [KafkaPositions(options(kafka.bootstrap_servers), topic) for _ in range(3)]

    made = await asyncio.gather(*[store.make() for store in stores])

    assert sum(map(len, made)) == 1
    assert await topics.names() == [topic]


async def test_more_replicas_than_there_are_brokers_are_refused_with_the_topics_name(
    kafka: Any, topics: Topics, topic: str
) -> None:
    store = KafkaPositions(options(kafka.bootstrap_servers), topic, 3)

    with pytest.raises(SinkUncertain, match=rf"{topic}.*[Rr]eplication"):
        await store.make()

    assert await topics.names() == []


async def test_a_check_changes_nothing_that_is_kept(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic, configs={"cleanup.policy": "compact"})
    async with KafkaPositions(options(kafka.bootstrap_servers), topic) as store:
        await store.write(Kept("shop", 3, b"{}"))

        assert (await found(store)).status is Status.OK

        assert await store.read("shop") == Kept("shop", 3, b"{}")
        for name in ("", "#check", "#"):
            assert await store.read(name) is None
    records = await topics.read_to_end(topic)
    assert [record.value for record in records] == [b"{}", None]


async def test_a_missing_topic_is_a_failure_and_stays_missing(
    kafka: Any, topics: Topics, topic: str
) -> None:
    given = options(kafka.bootstrap_servers, create_topics=True)

    one = await found(KafkaPositions(given, topic))

    assert (one.status, one.name) == (Status.FAILURE, "kafka.state_topic")
    assert topic in one.detail
    assert one.remedy == "cdc init"
    assert await topics.names() == []


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_a_topic_that_would_lose_positions_is_a_failure_with_the_cure(
    kafka: Any, topics: Topics, topic: str, policy: str
) -> None:
    await topics.create(topic, configs={"cleanup.policy": policy})

    one = await found(KafkaPositions(options(kafka.bootstrap_servers), topic))

    assert one.status is Status.FAILURE
    assert f"cleanup.policy={policy}" in one.detail
    assert f"--entity-name {topic} --add-config cleanup.policy=compact" in one.remedy


async def test_a_topic_with_several_partitions_is_a_failure(
    kafka: Any, topics: Topics, topic: str
) -> None:
    await topics.create(topic, partitions=3, configs={"cleanup.policy": "compact"})

    one = await found(KafkaPositions(options(kafka.bootstrap_servers), topic))

    assert one.status is Status.FAILURE
    assert "3 partitions" in one.detail


async def test_nobody_there_is_a_failure_that_names_the_address() -> None:
    one = await found(KafkaPositions(options("127.0.0.1:1"), "positions"))

    assert one.status is Status.FAILURE
    assert "127.0.0.1:1" in one.detail


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
async def test_every_connection_uses_the_way_in_that_the_options_describe(
    kafka_security: KafkaSecurity, topic: str, protocol: str
) -> None:
    given = options(
        kafka_security.sasl_tls if protocol == "SASL_SSL" else kafka_security.tls,
        security_protocol=protocol,
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username=kafka_security.user,
        sasl_password=SecretStr(kafka_security.password),
        ssl_cafile=kafka_security.ca_file,
    )
    async with KafkaPositions(given, topic) as store:
        assert len(await store.make()) == 1
        assert (await found(store)).status is Status.OK
        await store.write(Kept("shop", 1, b"{}"))
        assert await store.read("shop") == Kept("shop", 1, b"{}")


async def test_a_wrong_password_is_told_on_every_way_and_the_password_on_none(
    kafka_security: KafkaSecurity, topic: str
) -> None:
    wrong = "wr0ng-pass"
    given = options(
        kafka_security.sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_username=kafka_security.user,
        sasl_password=SecretStr(wrong),
    )
    store = KafkaPositions(given, topic)

    for asked in (store.__aenter__(), store.make()):
        with pytest.raises(SinkDenied) as denied:
            await asked
        assert wrong not in str(denied.value) + denied.value.hint
    one = await found(store)
    assert one.status is Status.FAILURE
    assert wrong not in one.detail + one.remedy


async def test_each_right_that_is_missing_is_named_by_check_and_by_use(
    private_kafka: Callable[..., LocalKafka], kafka_certificate: Certificate
) -> None:
    broker = private_kafka(
        listeners={"SASL": Listener(protocol="SASL_PLAINTEXT")},
        properties={
            name: value
            for name, value in security_properties(kafka_certificate).items()
            if "sasltls" not in name and not name.startswith("ssl.")
        }
        | {
            "authorizer.class.name": (
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            ),
            "super.users": "User:ANONYMOUS",
        },
    )
    topic = "positions"
    admins = KafkaPositions(options(broker.bootstrap_servers), topic)
    await admins.make()
    given = options(
        broker.address("SASL"),
        security_protocol="SASL_PLAINTEXT",
        sasl_username=USER,
        sasl_password=SecretStr(PASSWORD),
    )
    store = KafkaPositions(given, topic)

    async def refused(right: str) -> None:
        one = await found(store)
        assert one.status is Status.FAILURE
        assert topic in one.detail
        assert right in one.remedy

    await refused("Describe")
    with pytest.raises(SinkDenied):
        await store.make()

    # A relay may write to the topics of its events.
    await allow(broker, "outbox.event.order", WRITE)
    await allow(broker, topic, DESCRIBE)
    await refused("Read")
    async with admins, store:
        await admins.write(Kept("shop", 1, b"{}"))
        with pytest.raises(SinkDenied, match=topic):
            await store.read("shop")

    await allow(broker, topic, READ)
    await refused("Write")
    async with store:
        assert await store.read("shop") == Kept("shop", 1, b"{}")
        with pytest.raises(SinkDenied, match=topic):
            await store.write(Kept("shop", 2, b"{}"))

    await allow(broker, topic, WRITE)
    one = await found(store)
    assert one.status is Status.OK
    async with store:
        await store.write(Kept("shop", 2, b"{}"))
        assert await store.read("shop") == Kept("shop", 2, b"{}")


async def allow(broker: LocalKafka, topic: str, operation: int) -> None:
    """Give the relay's user one right."""
    client = AIOKafkaClient(bootstrap_servers=broker.bootstrap_servers)
    await client.bootstrap()
    request = CreateAclsRequest(
        TOPIC_RESOURCE, topic, LITERAL, f"User:{USER}", "*", operation, ALLOW
    )
    try:
        (node,) = client.cluster.brokers()
        answer = await client.send(node.nodeId, request)
    finally:
        await client.close()
    assert [code for code, _ in answer.creation_responses] == [0]
