from __future__ import annotations

import socket

from cdc.local.ports import PortLease, is_listening


def test_two_leases_never_have_the_same_port() -> None:
    leases = [PortLease() for _ in range(100)]
    try:
        assert len({lease.port for lease in leases}) == 100
    finally:
        for lease in leases:
            lease.release()


def test_a_leased_port_can_be_listened_on() -> None:
    with PortLease() as lease, socket.create_server(("127.0.0.1", lease.port)):
        assert is_listening(lease.port)
    assert not is_listening(lease.port)


def test_ports_stay_out_of_the_range_of_outgoing_connections() -> None:
    with PortLease() as lease:
        assert 1024 < lease.port < 32768


def test_a_lease_can_be_released_twice() -> None:
    lease = PortLease()
    lease.release()
    lease.release()
