"""Ports that are held: nobody else gets them, and their servers do."""

import asyncio
import socket

import grpc.aio
import pytest
from dejamq_lab.cluster.ports import held_block, held_ports, hold, port_of
from dejamq_proto.serving.server import SERVER_OPTIONS


def test_held_ports_are_different_ones() -> None:
    with held_ports(5) as ports:
        assert len(set(ports)) == 5


def test_a_held_port_is_given_to_nobody_who_asks_for_it() -> None:
    with held_ports(1) as (port,), socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with pytest.raises(OSError, match="in use"):
            hold("127.0.0.1", port)


async def test_servers_of_asyncio_and_grpc_listen_at_a_held_port_one_after_another() -> None:
    with held_ports(1) as (port,):
        plain = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port)
        plain.close()
        await plain.wait_closed()
        server = grpc.aio.server(options=SERVER_OPTIONS)
        assert server.add_insecure_port(f"127.0.0.1:{port}") == port
        await server.start()
        await server.stop(None)


def test_a_port_is_free_again_when_it_is_let_go() -> None:
    with held_ports(1) as (port,):
        pass
    with hold("127.0.0.1", port) as again:
        assert port_of(again) == port


def test_neighbours_of_a_block_are_held_too() -> None:
    with held_block(2, 1) as port:
        for near in range(port - 2, port + 2):
            with pytest.raises(OSError, match="in use"):
                hold("127.0.0.1", near)
