"""The processes of a standalone Spark cluster: a master on 127.0.0.1, and a Spark worker for every host.

Nothing here waits for anything: whoever asks looks again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from afspark.cluster.loopback.host_processes import end_session
from afspark.errors import UsageError

MASTER = "127.0.0.1"
#: The file in a host's folder that names its session.
SESSION = "session"
#: The one that names the folder with its resident state.
STATE = "state"
# Whoever starts hosts ends them. This is for the case that it is killed itself; not every system has the tool.
_END_WITH_PARENT = ("setpriv", "--pdeathsig", "SIGKILL")
#: Daemons that live for minutes must not spend them on compiling for hours.
_DAEMON_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DAEMON_MEMORY = "256m"
#: What a Spark worker offers is no more than a number; an executor takes what spark.executor.memory says.
_OFFERED_MEMORY = "1t"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_TELLING = re.compile(r"\b\w*(?:Error|Exception)\b.*")


@dataclass
class Daemon:
    """A process of the cluster and where it writes what it does."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.search(self.log.read_text(errors="replace"))

    def check(self, what: str) -> None:
        """Raises UsageError if it has ended."""
        status = self.process.poll()
        if status is not None:
            why = self.said(_TELLING)
            raise UsageError(f"{what} has ended: {why[0].rstrip('.') if why else f'exit status {status}'}.")


@dataclass
class LoopbackHosts:
    """A master and hosts with ``slots`` task slots each. Logs and scratch files are in ``folder``.

    The resident state of a host is in a folder of its own below ``base``, so that it goes with the host, and no other
    one finds it; ``base_variable`` is the environment variable that tells its tasks. ``master`` is the address of the
    master; ``launcher`` stands before the command of a host, with its address for ``{host}``.
    """

    folder: Path
    slots: int
    base: Path
    base_variable: str
    master: str = MASTER
    launcher: Sequence[str] = ()
    url: str = ""
    _daemons: dict[str, Daemon] = field(default_factory=dict)
    _states: Path | None = None

    def start_master(self) -> None:
        arguments = ["--host", self.master, "--port", "0", "--webui-port", "0"]
        self._spawn(self.master, ["org.apache.spark.deploy.master.Master", *arguments])

    def found_url(self) -> str:
        """The address of the master, once it has one; "" before. UsageError if the master has ended."""
        if not self.url:
            master = self._daemons[self.master]
            master.check("The Spark master")
            found = master.said(_URL)
            self.url = found[1] if found else ""
        return self.url

    def start(self, host: str) -> None:
        """Begins to start a host that does not run."""
        known = self._daemons.get(host)
        if known is None or known.process.poll() is not None:
            size = ["--host", host, "-c", str(self.slots), "-m", _OFFERED_MEMORY, "--webui-port", "0"]
            launcher = [part.format(host=host) for part in self.launcher]
            self._spawn(host, ["org.apache.spark.deploy.worker.Worker", *size, self.url], launcher)

    def is_ready(self, host: str) -> bool:
        """Whether the master knows the host. UsageError if the host's Spark worker has ended by itself."""
        daemon = self._daemons.get(host)
        if daemon is None:
            return False
        daemon.check(f"The Spark worker on {host}")
        return daemon.said(_REGISTERED) is not None

    def kill(self, host: str) -> None:
        """Ends everything of a host at once, and removes its resident state."""
        daemon = self._daemons.pop(host, None)
        if daemon is not None:
            end_session(daemon.process.pid)
            daemon.process.wait()
        shutil.rmtree(self.state_of(host), ignore_errors=True)

    def state_of(self, host: str) -> Path:
        """The folder with the resident state of a host."""
        if self._states is None:
            self.base.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A folder that begins with a dot holds no state of the host that this machine itself is.
            self._states = Path(tempfile.mkdtemp(prefix=".hosts-", dir=self.base))
        return self._states / host

    def stop(self) -> None:
        """Kills all hosts and the master, and leaves nothing behind."""
        hosts = [name for name in self._daemons if name != self.master]
        for name in [*hosts, *({self.master} & self._daemons.keys())]:
            self.kill(name)
        if self._states is not None:
            shutil.rmtree(self._states, ignore_errors=True)
            _remove_if_empty(self.base)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _spawn(self, host: str, command: Sequence[str], launcher: Sequence[str] = ()) -> None:
        scratch = self.folder / host
        scratch.mkdir(parents=True, exist_ok=True)
        log = scratch / "log"
        setpriv = _END_WITH_PARENT if shutil.which(_END_WITH_PARENT[0]) else ()
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*launcher, *setpriv, str(spark_home() / "bin" / "spark-class"), *command],
                env=os.environ | self._environment(host, scratch),
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._daemons[host] = Daemon(process, log)
        (scratch / SESSION).write_text(str(process.pid))
        (scratch / STATE).write_text(str(self.state_of(host)))

    def _environment(self, host: str, scratch: Path) -> dict[str, str]:
        """What a daemon, its executors and their Python processes need to know; JAVA_HOME is known by now."""
        temporary = scratch / "tmp"
        temporary.mkdir(exist_ok=True)
        java = f"-Djava.io.tmpdir={temporary} -XX:-UsePerfData"
        return {
            # JVMs that are killed leave their temporary files behind.
            "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {java}".strip(),
            "TMPDIR": str(temporary),
            "SPARK_HOME": str(spark_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": python_paths(),
            "SPARK_LOCAL_IP": host,
            "SPARK_WORKER_DIR": str(scratch),
            "SPARK_LOCAL_DIRS": str(scratch / "local"),
            # An application whose hosts fail again and again is no reason to remove it.
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_SUBMIT_OPTS") or _DAEMON_OPTIONS,
            "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
            self.base_variable: str(self.state_of(host)),
        }


def spark_home() -> Path:
    """The folder of the Spark that comes with PySpark, which this process need not import."""
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def python_paths() -> str:
    """The PYTHONPATH with which another process imports this package as this one does."""
    paths = [str(Path(__file__).parents[3]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
