"""A system-call filter for bubblewrap: what a namespace does not stop and no graded program needs.

Denied: nested namespaces and mounts, tracing, kernel keys, BPF, performance events, modules, what the machine has only so much of
(asynchronous I/O contexts, watches of files, reserved huge pages, room for filters), and memory that no limit of ours sees: memfd,
System V and POSIX message queues, anonymous shared maps (their pages stay when they are unmapped but for one), pages given to a
pipe, sockets with large buffers or of any network. Pretended, so that programs go on: writing out to disks (there is none), which
stops the whole machine's, and locks on parts of files, whose records count for nobody. Everything else that is known is allowed.
"""

from __future__ import annotations

import errno
import platform
import struct
from functools import cache

NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag that clone() takes
ALLOW, KILL, DENY = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06

# Each call's number on x86_64 and on aarch64, None where it is missing there.
DENIED = {
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272)},
    **{"shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180)},
    **{"memfd_create": (319, 279), "userfaultfd": (323, 282), "remap_file_pages": (216, 234)},
    **{"vmsplice": (278, 75), "splice": (275, 76), "tee": (276, 77), "io_setup": (206, 0)},
    **{"inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262)},
    **{"setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7)},
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "unshare": (272, 97), "setns": (308, 268)},
    **{"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)},
    **{"bpf": (321, 280), "perf_event_open": (298, 241), "seccomp": (317, 277), "modify_ldt": (154, None)},
    **{"name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "lookup_dcookie": (212, 18)},
    **{"kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "syslog": (103, 116)},
    **{"init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106)},
    **{"swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "acct": (163, 89)},
    **{"io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427)},
    **{"open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432)},
    **{"fspick": (433, 433), "pidfd_getfd": (438, 438), "process_madvise": (440, 440)},
    **{"mount_setattr": (442, 442), "quotactl_fd": (443, 443), "memfd_secret": (447, 447)},
}
# These do nothing and say that they did it.
PRETENDED = {
    **{"sync": (162, 81), "syncfs": (306, 267), "fsync": (74, 82), "fdatasync": (75, 83)},
    **{"sync_file_range": (277, 84)},
}
UNKNOWN = 463  # calls from here on are newer than this list, or the x32 calls of x86-64 under other numbers
CLONE3 = 435  # its flags lie behind a pointer that a filter cannot follow: ENOSYS sends libc back to clone()
# Calls that an argument decides on: (numbers, which argument, bits of it to look at, values, what becomes of these, of others).
MAP_SHARED, MAP_SHARED_VALIDATE, MAP_ANONYMOUS = 0x01, 0x03, 0x20
BUFFER_SIZES = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF and their FORCEs
SET_LOCKS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW and their forms for open files
DENIAL, MISSING, PRETENCE = DENY | errno.EPERM, DENY | errno.ENOSYS, DENY
ARGUMENTS = {
    "clone": ((56, 220), 0, NEW_NAMESPACES, (0,), ALLOW, DENIAL),
    "mmap": ((9, 222), 3, 0x2F, (MAP_SHARED | MAP_ANONYMOUS, MAP_SHARED_VALIDATE | MAP_ANONYMOUS), DENIAL, None),
    "mmap of huge pages": ((9, 222), 3, 0x40000, (0x40000,), DENIAL, ALLOW),
    "socket": ((41, 198), 0, 0xFFFFFFFF, (1,), ALLOW, DENIAL),  # AF_UNIX
    "setsockopt": ((54, 208), 2, 0xFFFFFFFF, BUFFER_SIZES, DENIAL, ALLOW),
    "prctl": ((157, 167), 0, 0xFFFFFFFF, (22,), DENIAL, ALLOW),  # PR_SET_SECCOMP
    "fcntl": ((72, 25), 1, 0xFFFFFFFF, SET_LOCKS, PRETENCE, ALLOW),
}
# AUDIT_ARCH_*, which the kernel reports with each call, and the column of numbers above.
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


@cache
def filter_program() -> bytes | None:
    """The filter as classic BPF, or None on an architecture whose call numbers are not listed here."""
    if platform.machine() not in ARCHITECTURES:
        return None
    architecture, column = ARCHITECTURES[platform.machine()]
    program = [
        _step(LOAD, 4),  # seccomp_data.arch
        _step(EQUAL, architecture, if_true=1),
        _step(RETURN, KILL),
        _step(LOAD, 0),  # seccomp_data.nr
        _step(AT_LEAST, UNKNOWN, if_false=1),
        _step(RETURN, MISSING),
        _step(EQUAL, CLONE3, if_false=1),
        _step(RETURN, MISSING),
    ]
    for calls, fate in ((DENIED, DENIAL), (PRETENDED, PRETENCE)):
        for numbers in calls.values():
            if (number := numbers[column]) is not None:
                program += [_step(EQUAL, number, if_false=1), _step(RETURN, fate)]
    for numbers, argument, mask, values, listed, others in ARGUMENTS.values():
        # The low half of the argument: all of these are 32 bits wide in the kernel.
        block = [_step(LOAD, 16 + 8 * argument), _step(AND, mask)]
        for value in values:
            block += [_step(EQUAL, value, if_false=1), _step(RETURN, listed)]
        block.append(_step(LOAD, 0) if others is None else _step(RETURN, others))  # on to the next rule about it
        program += [_step(EQUAL, numbers[column], if_false=len(block)), *block]
    program.append(_step(RETURN, ALLOW))
    return b"".join(program)
