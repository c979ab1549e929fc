"""The bubblewrap command line: what the program sees, which is next to nothing, and what it may do."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

from rlvr_graders.code.sandbox.errors import SandboxUnavailable

PACKAGES = "/packages"
WORK = "/tmp"
WRITABLE = (WORK, "/dev/shm")
# Neither /dev/zero, which gives shared memory that no limit sees, nor terminals, of which a machine has only so many.
DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")
LINKS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
# Time zones, and where the loader looks for libraries.
SMALL = ("/usr/share/zoneinfo", "/etc/localtime", "/etc/ld.so.cache", "/etc/alternatives", "/usr/lib/locale")
INSTALL = (
    "the code grader needs bubblewrap 0.7 or newer, and {problem}. Install it with one of:\n"
    "  sudo apt-get install bubblewrap    (Debian 12, Ubuntu 23.04 and later)\n"
    "  sudo dnf install bubblewrap\n  sudo pacman -S bubblewrap\n  sudo apk add bubblewrap"
)
BLOCKED = (
    "bubblewrap is installed but cannot make a sandbox here. It said: {words}\n"
    "  in a container: start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined (as root also --cap-add SYS_ADMIN --cap-add NET_ADMIN)\n"
    "  Ubuntu 24.04: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0\n"
    "  older Debian: sudo sysctl kernel.unprivileged_userns_clone=1"
)
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": WORK,
    "TMPDIR": WORK,
    "LANG": "C.UTF-8",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",  # the same program prints its sets in the same order every time
    "MALLOC_ARENA_MAX": "2",  # else each thread reserves 64 MiB of the address space
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def python_command() -> list[str]:
    """This interpreter without site, user folders or bytecode writing: what it does not import starts faster."""
    return [os.path.realpath(sys.executable), "-s", "-P", "-S", "-B"]


def package_paths(names: tuple[str, ...] | None) -> list[Path]:
    """Where the packages lie that programs may import; None means numpy where it is installed."""
    paths = []
    for name in ("numpy",) if names is None else names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            if names is None:
                continue
            raise ValueError(f"packages names {name!r}, which is not installed in {sys.prefix}")
        origin = Path(spec.origin)
        origin = origin.parent if origin.name.startswith("__init__.") else origin
        # Where wheels keep the shared libraries that they bring along.
        libraries = origin.parent / f"{name}.libs"
        paths += [origin, *([libraries] if libraries.is_dir() else [])]
    return paths


def real_root() -> bool:
    """Root of the machine, whom RLIMIT_NPROC does not bind: the sandbox then runs under a user id of its own."""
    if os.geteuid() != 0:
        return False
    return Path("/proc/self/uid_map").read_text().split()[2] == "4294967295"


@cache
def _file_system(packages: tuple[str, ...] | None) -> tuple[str, ...]:
    """The interpreter, its standard library, the shared libraries of the system and the packages: nothing else."""
    arguments: list[str] = []
    visible = [*_libraries(), *_interpreter(), *SMALL]
    if real_root():
        visible.append(os.path.realpath(shutil.which("setpriv") or ""))
    for path in filter(os.path.exists, visible):
        arguments += _bind(Path(path), Path(path))
    for name in ("bin", "lib", "lib64"):
        if os.path.islink(f"/{name}"):
            arguments += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
    for folder in _standard_library():
        for name in ("site-packages", "dist-packages"):
            if Path(folder, name).is_dir():
                arguments += [*_tmpfs(f"{folder}/{name}", 4096, "0755"), "--remount-ro", f"{folder}/{name}"]
    for package in package_paths(packages):
        arguments += _bind(package, Path(PACKAGES, package.name))
    return tuple(arguments)


def _libraries() -> list[str]:
    """Where the system keeps shared libraries. Debian has a folder for them alone; elsewhere they lie among others."""
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    folders = []
    for folder in ("/usr/lib", "/lib"):
        alone = os.path.join(folder, triplet)
        folders.append(alone if os.path.isdir(alone) else folder)
    folders = [*folders, "/usr/lib64", "/lib64"]
    there = filter(os.path.isdir, folders)
    return [folder for folder in there if not os.path.islink("/" + folder.split("/")[1])]


def _standard_library() -> set[str]:
    names = ("base", "platbase", "installed_base", "installed_platbase")
    base = dict.fromkeys(names, sys.base_prefix)
    return {os.path.realpath(sysconfig.get_path(name, vars=base)) for name in ("stdlib", "platstdlib")}


def _interpreter() -> list[str]:
    """This interpreter's own files: under a prefix that it shares with other software, no more than them."""
    program = os.path.realpath(sys.executable)
    prefix = os.path.realpath(sys.base_prefix)
    if prefix.startswith("/nix/"):
        return ["/nix/store"]  # every package has a folder of its own there, and needs those of others
    if prefix in ("/usr", "/usr/local"):
        library = os.path.join(*(sysconfig.get_config_var(name) or "" for name in ("LIBDIR", "INSTSONAME")))
        return [program, *sorted(_standard_library()), library]
    return [program, *sorted({os.path.dirname(folder) for folder in _standard_library()})]


def _bind(source: Path, target: Path) -> list[str]:
    # bubblewrap makes missing parents readable for their owner alone, and the program runs as somebody else.
    folders = [str(parent) for parent in reversed(target.parents) if str(parent) != "/"]
    made = [word for folder in folders for word in ("--perms", "0755", "--dir", folder)]
    return [*made, "--ro-bind", str(source), str(target)]


def _tmpfs(target: str, size: int, mode: str) -> list[str]:
    return ["--perms", mode, "--size", str(size), "--tmpfs", target]


def command(
    packages: tuple[str, ...] | None, temporary_bytes: int, info: int | None = None, seccomp: int | None = None
) -> list[str]:
    """Everything before the program's own command line. `info` and `seccomp` are file descriptors to pass on."""
    words = shlex.split("bwrap --unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try")
    words += shlex.split("--die-with-parent --new-session --hostname sandbox --clearenv --cap-drop ALL")
    as_root = real_root()
    if as_root:
        # For setpriv alone, which gives them up.
        words += shlex.split("--cap-add CAP_SETUID --cap-add CAP_SETGID")
    else:
        words += ["--unshare-user"]
    for name, value in ENVIRONMENT.items():
        words += ["--setenv", name, value]
    words += _file_system(packages)
    words += ["--proc", "/proc", *_tmpfs("/dev", 4096, "0755")]
    for device in DEVICES:
        words += ["--dev-bind", device, device]
    for name, target in LINKS.items():
        words += ["--symlink", f"/proc/self/{target}", f"/dev/{name}"]
    for folder in WRITABLE:
        words += _tmpfs(folder, temporary_bytes, "1777")
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORK]
    if info is not None:
        words += ["--info-fd", str(info)]
    if seccomp is not None:
        words += ["--seccomp", str(seccomp)]
    if as_root:
        # A number of its own, so that the limit on processes counts this sandbox and no other.
        user = str(random.SystemRandom().randrange(1_000_000_000, 2_000_000_000))
        words += ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all", "--"]
    return words


@cache
def check(packages: tuple[str, ...] | None) -> None:
    """Raise SandboxUnavailable, with how to change that, unless a sandbox with these packages can be made here."""
    if not sys.platform.startswith("linux") or shutil.which("bwrap") is None:
        raise SandboxUnavailable(INSTALL.format(problem="`bwrap` is not on the PATH"))
    said = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout
    version = tuple(map(int, re.findall(r"\d+", said)[:2]))
    if version < (0, 7):
        raise SandboxUnavailable(INSTALL.format(problem=f"this is {said.strip() or 'of an unknown version'}"))
    if real_root() and shutil.which("setpriv") is None:
        raise SandboxUnavailable("the code grader needs `setpriv` when run as root: install util-linux")
    attempt = [*command(packages, 1 << 20), *python_command(), "-c", "import os"]
    try:
        result = subprocess.run(attempt, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        raise SandboxUnavailable(BLOCKED.format(words="nothing for 60 seconds")) from None
    if result.returncode != 0:
        raise SandboxUnavailable(BLOCKED.format(words=result.stderr.strip() or f"status {result.returncode}"))
