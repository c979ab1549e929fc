"""Programs that try to be scored 1 without solving anything, or to do harm.

The task is `secret(n)`, whose answer nobody can compute: a random text made for the test. An attack that works finds
the answer or gets the grader to accept another, so its score would be 1. Each source gets PORT (a listener on the
host), SOCKET (an abstract Unix socket there), HOST_FOLDER and MARK (a name that its processes take) filled in.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

from rlvr_graders.code.sandbox.seccomp import DENIED


@dataclass(frozen=True)
class Attack:
    source: str
    reason: str
    """How the verdict on it begins: shows that the attack came as far as it meant to."""


ENDED, WRONG, TIMED_OUT, PIPE = "ended before answering", "wrong answer", "timed out", "wrote something else"

HELP = '''
import os, sys
open("/proc/self/comm", "w").write("MARK")

def forge(*messages):
    """Write well-formed messages to every pipe that can be found."""
    def encode(value):
        if value is True: return b"T"
        if isinstance(value, int): return b"i%x;" % value
        if isinstance(value, bytes): return b"b%d:" % len(value) + value
        if isinstance(value, str): return b"s%d:" % len(value.encode()) + value.encode()
        return b"t%d:" % len(value) + b"".join(map(encode, value))
    for descriptor in range(3, 40):
        for message in messages:
            data = encode(message)
            try: os.write(descriptor, len(data).to_bytes(4, "big") + data)
            except OSError: pass

def search(data):
    import re
    found = re.search(rb"SECRET-[0-9a-f]{32}", data)
    return found and found.group().decode()

def each_process():
    return sorted({os.getpid(), os.getppid(), *range(1, 10), *(int(p) for p in os.listdir("/proc") if p.isdigit())})
'''

X86_64 = platform.machine() == "x86_64"
NUMBERS = {name: numbers[0 if X86_64 else 1] for name, numbers in DENIED.items()}
LIBC = f"""
import ctypes
c = ctypes.CDLL(None, use_errno=True)
c.mmap.restype, c.mmap.argtypes = ctypes.c_size_t, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
c.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
EXIT, NUMBERS = {60 if X86_64 else 93}, {NUMBERS}
"""

ATTACKS = {
    "exit(0) in the call": Attack("def secret(n): exit(0)", "ended before answering: it called exit"),
    "exit(0) at the top": Attack("exit(0)", "does not load: ended before answering: it called exit"),
    "os._exit(0) in the call": Attack("def secret(n): os._exit(0)", ENDED),
    "os._exit(0) at the top": Attack("os._exit(0)", ENDED),
    "os.abort": Attack("def secret(n): os.abort()", ENDED),
    "segmentation fault": Attack("def secret(n):\n    import ctypes\n    ctypes.string_at(0)", ENDED),
    "execve": Attack("def secret(n): os.execv(sys.executable, [sys.executable, '-c', ''])", ENDED),
    "object equal to everything": Attack(
        "class Equal:\n    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = lambda *a: True\n"
        "    __ne__ = lambda *a: False\n    __hash__ = lambda s: 0\n    __bool__ = lambda s: True\n"
        "    __class__ = str\n    __len__ = lambda s: 39\n    __iter__ = lambda s: iter('x')\n"
        "def secret(n): return Equal()",
        WRONG,
    ),
    "text equal to everything": Attack(
        "class Equal(str):\n    __eq__ = lambda *a: True\n    __ne__ = lambda *a: False\n"
        "    __hash__ = lambda s: 0\n    encode = lambda s, *a: b'x'\n"
        "def secret(n): return Equal('x')",
        WRONG,
    ),
    "number equal to everything": Attack(
        "class Equal(float):\n    __eq__ = lambda *a: True\n    __repr__ = lambda s: 'nan;TTT'\n"
        "def secret(n): return Equal(1)",
        WRONG,
    ),
    "not a number": Attack("def secret(n): return float('nan')", WRONG),
    "patched builtins": Attack(
        "import builtins, json, operator, unittest\n"
        "class Never(BaseException): pass\n"
        "builtins.AssertionError = Never\nbuiltins.all = builtins.any = builtins.isinstance = lambda *a: True\n"
        "builtins.len = builtins.abs = lambda *a: 0\noperator.eq = lambda *a: True\njson.loads = lambda *a: None\n"
        "unittest.TestCase.assertEqual = lambda *a: None\n"
        "sys.excepthook = lambda *a: os._exit(0)\nsys.settrace(lambda *a: None)\n"
        "def secret(n): return None",
        "",  # what becomes of a process with such builtins is its own affair
    ),
    "patched test runner": Attack(
        "import gc\n"
        "frame = sys._getframe()\n"
        "while frame:\n"
        "    for name in ('encode', 'write_message', 'answer', 'describe'):\n"
        "        if name in frame.f_globals:\n"
        "            old = frame.f_globals[name]\n"
        "            if name == 'write_message':\n"
        "                frame.f_globals[name] = lambda to, message, old=old: old(to, ('passed', 1))\n"
        "    frame = frame.f_back\n"
        "def secret(n): return True",
        PIPE,
    ),
    "forged verdict": Attack("def secret(n):\n    forge(('passed', 1))\n    return None", PIPE),
    "forged verdict at the top": Attack("forge(('ready',), ('passed', 9))\nos._exit(0)", ""),
    "forged answers": Attack(
        "forge(('ready',), *(('value', n, b'T', b'') for n in range(3)))\ndef secret(n): return True", WRONG
    ),
    "forged length": Attack(
        "def secret(n):\n    for d in range(3, 40):\n        try: os.write(d, b'\\xff' * 4)\n        except OSError: pass",
        "too much output",
    ),
    "prints the expected format": Attack(
        "def secret(n):\n    for d in (1, 2):\n"
        '        os.write(d, b\'OK\\nPASSED\\n1 passed in 0.01s\\n{"passed": true, "score": 1.0}\\ncorrect\\n\')\n'
        "    print('SECRET-' + '0' * 32)",
        WRONG,
    ),
    "looks for the test file": Attack(
        "def secret(n):\n"
        "    for top in (HOST_FOLDER, '/tmp', '/dev/shm', '/etc', '/home', '/var', '/run'):\n"
        "        for folder, _, files in os.walk(top):\n"
        "            for name in files:\n"
        "                path = os.path.join(folder, name)\n"
        "                try: found = os.path.getsize(path) < 1 << 20 and search(open(path, 'rb').read())\n"
        "                except OSError: continue\n"
        "                if found: return found\n",
        WRONG,
    ),
    "looks in its own objects": Attack(
        "import gc\n"
        "def secret(n):\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        found = search(repr((frame.f_locals, list(frame.f_globals))).encode())\n"
        "        if found: return found\n"
        "        frame = frame.f_back\n"
        "    for thing in gc.get_objects():\n"
        "        if type(thing) in (dict, list, tuple):\n"
        "            for item in (thing.values() if type(thing) is dict else thing):\n"
        "                if type(item) in (str, bytes):\n"
        "                    found = search(item if type(item) is bytes else item.encode('utf-8', 'replace'))\n"
        "                    if found: return found\n",
        WRONG,
    ),
    "reads memory by /proc": Attack(
        "def secret(n):\n"
        "    for process in each_process():\n"
        "        for name in ('cmdline', 'environ'):\n"
        "            try: found = search(open(f'/proc/{process}/{name}', 'rb').read())\n"
        "            except OSError: continue\n"
        "            if found: return found\n"
        "        try:\n"
        "            memory, maps = open(f'/proc/{process}/mem', 'rb', 0), open(f'/proc/{process}/maps').read()\n"
        "        except OSError: continue\n"
        "        for line in maps.splitlines():\n"
        "            if not line.split()[1].startswith('rw'): continue\n"
        "            start, end = (int(x, 16) for x in line.split()[0].split('-'))\n"
        "            try:\n"
        "                memory.seek(start)\n"
        "                found = search(memory.read(end - start))\n"
        "            except (OSError, ValueError, OverflowError): continue\n"
        "            if found: return found\n",
        WRONG,
    ),
    "traces its parents": Attack(
        "def secret(n):\n"
        "    import ctypes\n"
        "    c = ctypes.CDLL(None, use_errno=True)\n"
        "    buffer = ctypes.create_string_buffer(64)\n"
        "    for process in each_process():\n"
        "        if process == os.getpid(): continue\n"
        "        vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 64)\n"
        "        remote = (ctypes.c_void_p * 2)(0x400000, 64)\n"
        "        if c.ptrace(16, process, 0, 0) == 0 or c.process_vm_readv(process, vector, 1, remote, 1, 0) > 0:\n"
        "            raise SystemError('traced')\n",
        WRONG,
    ),
    "makes a namespace": Attack(
        "def secret(n):\n"
        "    import ctypes\n"
        "    c = ctypes.CDLL(None, use_errno=True)\n"
        "    if c.unshare(0x10000000) == 0 or c.mount(b'none', b'/tmp', b'tmpfs', 0, 0) == 0 or c.setuid(0) == 0:\n"
        "        raise SystemError('escaped')\n",
        WRONG,
    ),
    "raises its limits": Attack(
        "def secret(n):\n"
        "    import resource\n"
        "    for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):\n"
        "        try: resource.setrlimit(kind, (resource.RLIM_INFINITY,) * 2)\n"
        "        except (ValueError, OSError): continue\n"
        "        raise SystemError('raised')\n",
        WRONG,
    ),
    "fork bomb": Attack(
        "def secret(n):\n    while True:\n        try: os.fork()\n        except OSError: pass", TIMED_OUT
    ),
    "thread bomb": Attack(
        "def secret(n):\n    import threading, time\n    made = 0\n"
        "    try:\n        while True:\n            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "            made += 1\n    except RuntimeError:\n        if made > 256: raise SystemError('unlimited')",
        WRONG,
    ),
    "memory bomb": Attack(
        "def secret(n):\n    hold = []\n    while True: hold.append(bytearray(1 << 24))", "ran out of memory"
    ),
    "memory bomb of many processes": Attack(
        "def secret(n):\n"
        "    for _ in range(16):\n"
        "        if os.fork() == 0: break\n"
        "    hold = bytearray(b'x') * (150 << 20)\n"
        "    while True: pass",
        "used more than",
    ),
    "memory bomb in files": Attack(
        "def secret(n):\n"
        "    kept, made = [], 0\n"
        "    for folder in ('/tmp', '/dev/shm', '/dev', '/'):\n"
        "        for number in range(100):\n"
        "            try:\n"
        "                with open(f'{folder}/MARK{number}', 'wb') as file: made += file.write(bytes(4 << 20))\n"
        "            except OSError: break\n"
        "    try: kept.append(os.memfd_create('MARK'))\n"
        "    except OSError: pass\n"
        "    if kept or made > 64 << 20: raise SystemError('unlimited')\n",
        WRONG,
    ),
    # Memory that an address space, a process's own pages or the children of a process do not show.
    "shared maps in several processes": Attack(
        "def secret(n):\n    import mmap\n"
        "    for _ in range(8):\n        if os.fork() == 0: break\n"
        "    try: held = mmap.mmap(-1, 150 << 20)\n    except OSError: return\n"
        "    for at in range(0, 150 << 20, 4096): held[at] = 1\n    while True: pass",
        WRONG,
    ),
    "shared maps let go but for a page": Attack(
        LIBC + "def secret(n):\n"
        "    for _ in range(16):\n"
        "        at = c.mmap(None, 64 << 20, 3, 0x21, -1, 0)\n"
        "        if at in (None, 2**64 - 1): return\n"
        "        ctypes.memset(at, 1, 64 << 20)\n        c.munmap(at + 4096, (64 << 20) - 4096)\n"
        "    raise SystemError('unlimited')",
        WRONG,
    ),
    "shared maps of a device": Attack(
        "def secret(n):\n    import mmap\n"
        "    for path in ('/dev/zero', '/dev/full', '/dev/shm', '/dev/mem', '/dev/ptmx', '/dev/pts/ptmx'):\n"
        "        try: held = mmap.mmap(os.open(path, os.O_RDWR), 1 << 20)\n        except (OSError, ValueError): continue\n"
        "        raise SystemError(path)",
        WRONG,
    ),
    "first threads that end": Attack(
        LIBC + "import threading, time\n"
        "def hold():\n    kept = bytearray(b'x') * (150 << 20)\n    time.sleep(60)\n"
        "def secret(n):\n"
        "    for _ in range(6):\n"
        "        if os.fork() == 0:\n"
        "            threading.Thread(target=hold).start()\n            c.syscall(EXIT, 0)\n"
        "    time.sleep(60)",
        "used more than",
    ),
    "orphans in sessions of their own": Attack(
        LIBC + "import signal, time\n"
        "def secret(n):\n"
        "    for _ in range(6):\n"
        "        if os.fork() == 0:\n"
        "            if os.fork(): os._exit(0)\n"
        "            os.setsid()\n            c.prctl(4, 0, 0, 0, 0)\n"  # not dumpable: its files in /proc are root's
        "            kept = bytearray(b'x') * (150 << 20)\n            os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    time.sleep(60)",
        "used more than",
    ),
    "a burst of processes": Attack(
        "import time\ndef secret(n):\n    for _ in range(100):\n        if os.fork() == 0: break\n"
        "    kept = bytearray(b'x') * (100 << 20)\n    time.sleep(60)",
        "used more than",
    ),
    "full sockets": Attack(
        "import socket, time\ndef secret(n):\n    kept = []\n    for _ in range(16):\n        if os.fork() == 0: break\n"
        "    while True:\n"
        "        try: pair = socket.socketpair()\n        except OSError: time.sleep(60)\n"
        "        kept.append(pair)\n"
        "        for end in pair:\n            end.setblocking(False)\n"
        "            try:\n                while True: end.send(bytes(65536))\n            except OSError: pass",
        "used more than",
    ),
    "full pipes": Attack(
        "import fcntl, time\ndef secret(n):\n    for _ in range(200):\n        if os.fork() == 0: break\n"
        "    while True:\n"
        "        try: ends = os.pipe()\n        except OSError: time.sleep(60)\n"
        "        os.set_blocking(ends[1], False)\n"
        "        try: fcntl.fcntl(ends[1], 1031, 1 << 20)\n        except OSError: pass\n"
        "        try:\n            while True: os.write(ends[1], bytes(1 << 16))\n        except OSError: pass\n"
        "        os.close(ends[1])",
        "used more than",
    ),
    "large buffers of sockets": Attack(
        "import socket\ndef secret(n):\n    for end in socket.socketpair():\n"
        "        for option in (7, 8, 32, 33):\n"
        "            try: end.setsockopt(1, option, 1 << 30)\n            except OSError: continue\n"
        "            raise SystemError('unlimited')",
        WRONG,
    ),
    "calls that nobody needs": Attack(
        LIBC + "def secret(n):\n    place = ctypes.create_string_buffer(4096)\n"
        "    calls = {'semget': (0, 32000, 0o1666), 'shmget': (0, 1 << 20, 0o1666), 'msgget': (0, 0o1666),\n"
        "             'mq_open': (b'x', 0o102, 0o600, 0), 'io_setup': (65536, place), 'vmsplice': (1, place, 0, 0),\n"
        "             'inotify_init1': (0,), 'fanotify_init': (0, 0), 'userfaultfd': (1,), 'memfd_create': (b'x', 0),\n"
        "             'memfd_secret': (0,), 'io_uring_setup': (4, place), 'bpf': (0, place, 64), 'keyctl': (0, -3, 1),\n"
        "             'perf_event_open': (place, 0, -1, -1, 0), 'ptrace': (0,), 'unshare': (0,), 'setns': (0, 0)}\n"
        "    done = [name for name, words in calls.items() if c.syscall(NUMBERS[name], *words) != -1]\n"
        "    if done: raise SystemError(done)",
        WRONG,
    ),
    "calls that the filter does not know": Attack(
        LIBC + "def secret(n):\n    known = [number for number in range(463, 600)\n"
        "             if c.syscall(number, -1, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != 38]\n"
        "    if known: raise SystemError(known)",
        WRONG,
    ),
    "filters of its own": Attack(
        LIBC + "import struct\nc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]\n"
        "def secret(n):\n    step = ctypes.create_string_buffer(struct.pack('HBBI', 0x06, 0, 0, 0x7fff0000))\n"
        "    rules = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(step)))\n"
        "    if c.prctl(22, 2, ctypes.addressof(rules), 0, 0) == 0: raise SystemError('unlimited')",
        WRONG,
    ),
    "huge pages": Attack(
        LIBC + "def secret(n):\n    for kind in (0x40022, 0x40021):\n"
        "        c.mmap(None, 2 << 20, 3, kind, -1, 0)\n        if ctypes.get_errno() != 1: raise SystemError(kind)",
        WRONG,
    ),
    "locks on every byte": Attack(
        "import fcntl\ndef secret(n):\n    with open('/tmp/locked', 'w') as file:\n"
        "        for at in range(0, 2000, 2): fcntl.lockf(file, fcntl.LOCK_EX, 1, at)\n"
        "        if open('/proc/locks').read(): raise SystemError('unlimited')",
        WRONG,
    ),
    "writes out all disks": Attack(
        "import time\ndef secret(n):\n    start = time.time()\n    for _ in range(100_000): os.sync()\n"
        "    if time.time() - start > 10: raise SystemError('unlimited')",
        WRONG,
    ),
    "sockets of every family": Attack(
        "import socket\ndef secret(n):\n    for family in [*range(2, 46)]:\n        for kind in (1, 2, 3, 5):\n"
        "            try: socket.socket(family, kind)\n            except OSError: continue\n"
        "            raise SystemError(family)",
        WRONG,
    ),
    "infinite loop": Attack("def secret(n):\n    while True: pass", TIMED_OUT),
    "infinite loop at the top": Attack("while True: pass", TIMED_OUT),
    "loop that catches everything": Attack(
        "import signal\nfor number in range(1, 65):\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "def secret(n):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        TIMED_OUT,
    ),
    "endless iterator": Attack("import itertools\ndef secret(n): return itertools.count()", "raised WireError"),
    "value with a loop": Attack("def secret(n):\n    x = []\n    x.append(x)\n    return x", "raised WireError"),
    "value that loops when looked at": Attack(
        "class Slow:\n    def __bool__(self):\n        while True: pass\ndef secret(n): return Slow()", TIMED_OUT
    ),
    "output flood": Attack(
        "def secret(n):\n    import time\n    end = time.time() + 0.3\n"
        "    while time.time() < end: print('x' * 100000); os.write(2, b'x' * 100000)",
        WRONG,
    ),
    "reply flood": Attack(
        "def secret(n):\n"
        "    while True:\n"
        "        for descriptor in range(3, 40):\n"
        "            try: os.write(descriptor, b'\\x00\\x00\\x00\\x01N' * 1000)\n"
        "            except OSError: pass",
        PIPE,
    ),
    "message byte by byte": Attack(
        "import time\ndef secret(n):\n    for d in range(3, 40):\n"
        "        try: os.write(d, (1 << 20).to_bytes(4, 'big'))\n        except OSError: pass\n"
        "    while True:\n        for d in range(3, 9):\n            try: os.write(d, b'x')\n            except OSError: pass",
        "",  # too long, or no message once it is there
    ),
    "writes outside its folder": Attack(
        "def secret(n):\n"
        "    places = ['/usr', '/etc', '/root', '/home', '/var', '/packages', '/', '/dev', '/proc', '/proc/sys/kernel',\n"
        "        '/sys', '/run', sys.prefix, os.path.dirname(os.__file__), HOST_FOLDER, os.path.expanduser('~root')]\n"
        "    for place in places:\n"
        "        try: open(os.path.join(place, 'MARK'), 'w').write('x')\n"
        "        except OSError: continue\n"
        "        raise SystemError(place)\n"
        "    for path in ('/tmp/MARK', '/dev/shm/MARK'): open(path, 'w').write('x')\n",
        WRONG,
    ),
    "daemon that outlives it": Attack(
        "def secret(n):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            import time\n"
        "            while True: time.sleep(0.01); forge(('passed', 1))\n"
        "        os._exit(0)\n"
        "    import time\n    time.sleep(0.2)\n",
        PIPE,
    ),
    "quiet daemon": Attack(
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.closerange(0, 64)\n"
        "        import time\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "def secret(n): pass",
        WRONG,
    ),
    "network by socket": Attack(
        "def secret(n):\n"
        "    import socket\n"
        "    for family, address in ((socket.AF_INET, ('127.0.0.1', PORT)), (socket.AF_UNIX, '\\0SOCKET'),\n"
        "                            (socket.AF_INET, ('192.0.2.1', 80))):\n"
        "        try:\n"
        "            with socket.socket(family) as s:\n"
        "                s.settimeout(0.3)\n"
        "                s.connect(address)\n"
        "        except OSError: continue\n"
        "        raise SystemError('connected')\n",
        WRONG,
    ),
    "network by ctypes": Attack(
        "def secret(n):\n"
        "    import ctypes, socket, struct\n"
        "    c = ctypes.CDLL(None)\n"
        "    s = c.socket(2, 1, 0)\n"
        "    address = struct.pack('=H', 2) + struct.pack('!H', PORT) + socket.inet_aton('127.0.0.1') + bytes(8)\n"
        "    if c.connect(s, address, 16) == 0: raise SystemError('connected')\n",
        WRONG,
    ),
    "signals to its parents": Attack(
        "def secret(n):\n"
        "    import signal\n"
        "    for process in (os.getppid(), 1, -1, 0 - os.getppid(), *range(2, 300)):\n"
        "        if process != os.getpid():\n"
        "            for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):\n"
        "                try: os.kill(process, number)\n"
        "                except OSError: pass\n",
        WRONG,
    ),
    "stops itself": Attack("def secret(n):\n    import signal\n    os.kill(os.getpid(), signal.SIGSTOP)", TIMED_OUT),
    "deletes its folder": Attack(
        "def secret(n):\n    import shutil\n    for path in (os.getcwd(), '/tmp', '/dev/shm', '/packages', sys.prefix + '/bin'):\n"
        "        shutil.rmtree(path, ignore_errors=True)\n",
        WRONG,
    ),
}

# Whole programs, judged by what they print; the expected text is the secret.
PROGRAM_ATTACKS = {
    "exit(0)": Attack("exit(0)", WRONG),
    "os._exit(0)": Attack("os._exit(0)", WRONG),
    "prints the expected format": Attack(
        "print('OK'); print('{\"passed\": true}'); print('SECRET-' + '0' * 32); os.write(2, b'correct')", WRONG
    ),
    "forged output": Attack("forge(('output', 0, 'ended', 0, b'x', b''), ('passed', 1))", WRONG),
    "writes to the pipe of its supervisor": Attack(
        "for descriptor in range(3, 40):\n"
        "    try:\n"
        "        out = os.open(f'/proc/{os.getppid()}/fd/{descriptor}', os.O_WRONLY)\n"
        "        os.write(out, (36).to_bytes(4, 'big') + b't6:s6:outputi0;s5:endedi0;b1:xb1:xTT')\n"
        "    except OSError: pass",
        "",
    ),
    "reads memory of its supervisor": Attack(
        "try: print(search(open(f'/proc/{os.getppid()}/mem', 'rb', 0).read()))\nexcept OSError as e: print(e)", WRONG
    ),
    "output flood": Attack("while True: print('x' * 1000000)", "too much output"),
    "error flood": Attack("while True: os.write(2, b'x' * 1000000)", TIMED_OUT),
    "infinite loop": Attack("while True: pass", TIMED_OUT),
    "fork bomb": Attack("while True:\n    try: os.fork()\n    except OSError: pass", TIMED_OUT),
    "memory bomb": Attack("hold = []\nwhile True: hold.append(bytearray(1 << 24))", "ran out of memory"),
    "daemon that outlives it": Attack(
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        import time\n        time.sleep(1000)\n"
        "    os._exit(0)\nprint('x')",
        WRONG,
    ),
    "kills its supervisor": Attack("import signal\nos.kill(os.getppid(), signal.SIGKILL)\nprint('x')", ENDED),
    "stops its supervisor": Attack("import signal\nos.kill(os.getppid(), signal.SIGSTOP)\nprint('x')", TIMED_OUT),
    "stops everything": Attack(
        "import signal\nos.kill(-1, signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)", TIMED_OUT
    ),
    "deletes its folder": Attack("import shutil\nshutil.rmtree('/tmp', ignore_errors=True)", WRONG),
}

# Functions that want to pass for right, or to take the grader's own process down: judged together, by every kind of test.
FORGE = (
    HELP
    + '''
def send(data):
    """Write any message to every pipe that can be found."""
    data = len(data).to_bytes(4, "big") + data
    for descriptor in range(3, 40):
        try:
            view = memoryview(data)
            while view: view = view[os.write(descriptor, view):]
        except OSError: pass

def value(data, number=0):
    """Answer a call with any bytes."""
    send(b"t4:s5:valuei%x;b%d:" % (number, len(data)) + data + b"b0:")

def error(base, name):
    for number in range(3):
        send(b"t5:s5:errori%x;" % number + b"".join(b"s%d:" % len(s) + s for s in (base, name, b"x")))

PRIME = 2**61 - 1
def colliding(count): return b"".join(b"i%x;" % (number * PRIME) for number in range(count))
'''
)
CHEATS = {
    # exceptions that mean something where the tests stand
    "StopIteration": "def secret(n): raise StopIteration",
    "StopIteration of next": "def secret(n): return next(iter(()))",
    "StopIteration under another name": "class ValueError(StopIteration): pass\ndef secret(n): raise ValueError",
    "StopIteration that claims to be built in": "class ZeroDivisionError(StopIteration): pass\n"
    "ZeroDivisionError.__module__ = 'builtins'\ndef secret(n): raise ZeroDivisionError",
    "StopIteration, forged": "def secret(n): error(b'StopIteration', b'StopIteration')",
    "an exception that is none, forged": "def secret(n): error(b'print', b'print')",
    "StopAsyncIteration": "def secret(n): raise StopAsyncIteration",
    "GeneratorExit": "def secret(n): raise GeneratorExit",
    "KeyboardInterrupt": "def secret(n): raise KeyboardInterrupt",
    "SystemExit": "def secret(n): raise SystemExit(0)",
    "its own BaseException": "class Own(BaseException): pass\ndef secret(n): raise Own",
    "AssertionError": "def secret(n): raise AssertionError",
    "exception without a text": "class Own(Exception):\n    def __str__(self): raise SystemExit\ndef secret(n): raise Own",
    "exception with a false pedigree": "class Meta(type):\n    __mro__ = (StopIteration,)\n"
    "class Own(Exception, metaclass=Meta): pass\ndef secret(n): raise Own",
    "generator": "def secret(n): yield from ()",
    "coroutine": "async def secret(n): return 1",
    # values that lie
    "equal text": "class Liar(str):\n    __eq__ = lambda *a: True\n    __hash__ = str.__hash__\ndef secret(n): return Liar('x')",
    "equal number": "class Liar(int):\n    __eq__ = __ge__ = lambda *a: True\n    __mod__ = lambda *a: b'T'\n"
    "    __hash__ = int.__hash__\ndef secret(n): return Liar(3)",
    "equal list": "class Liar(list):\n    __eq__ = lambda *a: True\n    __len__ = lambda s: 2\ndef secret(n): return Liar()",
    "equal class": "class Meta(type):\n    __eq__ = lambda *a: True\n    __hash__ = type.__hash__\n"
    "class Liar(metaclass=Meta): pass\ndef secret(n): return Liar",
    "false numpy": "class Liar:\n    __eq__ = lambda *a: True\n    tolist = lambda s: Liar\nLiar.__module__ = 'numpy'\n"
    "def secret(n): return Liar()",
    "false decimal": "class Decimal:\n    __str__ = lambda s: 'sNaN'\nDecimal.__module__ = 'decimal'\ndef secret(n): return Decimal()",
    "false date": "class date:\n    year = month = day = 10**30\ndate.__module__ = 'datetime'\ndef secret(n): return date()",
    "nothing to look at": "class Odd: pass\nOdd.__module__ = 7\ndef secret(n): return Odd()",
    "answers before the question": "for number in range(3): value(b'T', number)\ndef secret(n): return None",
    "patched encoder": "for name, module in list(sys.modules.items()):\n    if name.endswith('wire'): module.encode = lambda v: b'T'\n"
    "def secret(n): return 1",
}
# Values that cost whoever looks at them.
COSTLY = {
    "signalling not-a-number": "from decimal import Decimal\ndef secret(n): return Decimal('sNaN')",
    "the same deep inside": "from decimal import Decimal\ndef secret(n): return {'a': [(Decimal('sNaN'),)]}",
    "huge exponent": "from decimal import Decimal\ndef secret(n): return Decimal('1e200000000')",
    "long range": "def secret(n): return range(10**18)",
    "long integer": "def secret(n): return 1 << (1 << 23)",
    "long fraction": "from fractions import Fraction\ndef secret(n): return Fraction(3**200_000, 2**300_000)",
    "colliding set": "def secret(n): value(b'S150000:' + colliding(150_000))",
    "colliding list": "def secret(n): return [number * PRIME for number in range(150_000)]",
    "colliding dictionary": "def secret(n): value(b'd75000:' + colliding(150_000))",
    "colliding message": "def secret(n): send(b'S150000:' + colliding(150_000))",
    "long message": "def secret(n): send(b't1000000:' + b's0:' * 1_000_000)",
    "empty sets": "def secret(n): value(b'l1300000:' + b'S0:' * 1_300_000)",
    "depth": "def secret(n): value(b'l1:' * 1_300_000 + b'N')",
    "objects": "class Own: pass\ndef secret(n): return [Own() for _ in range(100_000)]",
    "long error": "def secret(n): send(b't5:s5:errori0;s5:Errors1000000:' + b'x' * 1_000_000 + b's1000000:' + b'\\n' * 1_000_000)",
}
