"""RabbitMQ with one durable classic queue."""

from dejamq_lab.bench.peers.peer import Peer
from dejamq_lab.cluster.plan import LOOPBACK

SCRIPTS = "/usr/lib/rabbitmq/bin"
"""Debian's command on the PATH changes the user and the folder; the script behind it does neither."""


class RabbitMQ(Peer):
    name = "rabbitmq"
    program = ("rabbitmq-server", "rabbitmq-server")
    library = "aio_pika"
    modes = frozenset({"submit", "await", "single"})
    durability = "durable classic queue, persistent messages, publisher confirms; consumer that acknowledges"

    async def start(self) -> str:
        port, distribution, mapper = self.held_ports(3)
        log = self.spawn(["epmd", "-address", LOOPBACK, "-port", str(mapper)])
        await self.listening(mapper, log)
        settings = self.folder / "rabbitmq.conf"
        settings.write_text(
            f"listeners.tcp.1 = {LOOPBACK}:{port}\ndisk_free_limit.absolute = 1GB\nlog.console = true\n"
        )
        (self.folder / "enabled_plugins").write_text("[].\n")
        environment = {
            "HOME": str(self.folder), "ERL_EPMD_PORT": str(mapper), "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": f"bench{port}@localhost", "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"), "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(settings), "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "none.config"),
            "RABBITMQ_ALLOW_INPUT": "1",  # no shell that waits around the server
            "PATH": f"{SCRIPTS}:/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin:/bin",
        }  # fmt: skip
        log = self.spawn(["rabbitmq-server", "-noinput"], environment)
        return await self.listening(port, log)
