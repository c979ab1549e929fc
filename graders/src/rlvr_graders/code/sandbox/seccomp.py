"""A system-call filter for bubblewrap: what a namespace does not stop and no graded program needs.

Denied: nested namespaces and mounts, tracing, kernel keys, BPF, performance events, io_uring, modules, and memory
that resource limits do not see (memfd, System V shared memory and message queues). Everything else is allowed.
"""

from __future__ import annotations

import errno
import platform
import struct
from functools import cache

NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag that clone() takes
ALLOW, KILL, DENY = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

# New calls have the same number everywhere: io_uring 425-427, open_tree 428, move_mount 429, fsopen 430, pidfd_getfd
# 438, mount_setattr 442, memfd_secret 447.
EVERYWHERE = (425, 426, 427, 428, 429, 430, 438, 442, 447)
CLONE3 = 435  # its flags lie behind a pointer that a filter cannot follow: ENOSYS sends libc back to clone()
# ptrace, shmget, msgget, memfd_create, process_vm_readv, process_vm_writev, mount, umount2, pivot_root, unshare, setns,
# add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd, name_to_handle_at, open_by_handle_at, kexec_load,
# init_module, finit_module, delete_module, swapon, swapoff, reboot, syslog
X86_64 = "101 29 68 319 310 311 165 166 155 272 308 248 249 250 321 298 323 303 304 246 175 313 176 167 168 169 103"
AARCH64 = (
    "117 194 186 279 270 271 40 39 41 97 268 217 218 219 280 241 282 264 265 104 105 273 106 224 225 142 116"
)
# AUDIT_ARCH_*, which the kernel reports with each call; the number of clone(), allowed for processes and threads, not for namespaces;
# the calls that fail with EPERM.
ARCHITECTURES = {
    "x86_64": (0xC000003E, 56, (*map(int, X86_64.split()), *EVERYWHERE)),
    "aarch64": (0xC00000B7, 220, (*map(int, AARCH64.split()), *EVERYWHERE)),
}


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


@cache
def filter_program() -> bytes | None:
    """The filter as classic BPF, or None on an architecture whose call numbers are not listed here."""
    if platform.machine() not in ARCHITECTURES:
        return None
    architecture, clone, denied = ARCHITECTURES[platform.machine()]
    deny, missing = DENY | errno.EPERM, DENY | errno.ENOSYS
    program = [
        _step(LOAD, 4),  # seccomp_data.arch
        _step(EQUAL, architecture, if_true=1),
        _step(RETURN, KILL),
        _step(LOAD, 0),  # seccomp_data.nr
        _step(AT_LEAST, 0x40000000, if_false=1),  # the x32 calls of x86-64, under other numbers
        _step(RETURN, missing),
        _step(EQUAL, CLONE3, if_false=1),
        _step(RETURN, missing),
        _step(EQUAL, clone, if_false=4),
        _step(LOAD, 16),  # low half of the first argument: clone's flags
        _step(ANY_BIT, NEW_NAMESPACES, if_false=1),
        _step(RETURN, deny),
        _step(RETURN, ALLOW),
    ]
    for number in denied:
        program += [_step(EQUAL, number, if_false=1), _step(RETURN, deny)]
    program.append(_step(RETURN, ALLOW))
    return b"".join(program)
