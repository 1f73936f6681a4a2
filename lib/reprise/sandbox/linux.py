"""The system calls a sandbox is made of; the standard library of Python 3.11 has no names for them.

Imported by the worker alone, as a plain file: nothing of Reprise is loaded there. Each function raises OSError with the
kernel's reason.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x0002_0000,
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
)
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 0x4_0000, 0x1000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
NO_GROUP = 65534

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER, _PR_SET_SECCOMP = 1, 38, 36, 22
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_CAPABILITY_VERSION_3 = 0x2008_0522

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    """Leave the namespaces in `flags` for new ones; with NEWPID the next child is process 1 of its own."""
    _checked(_libc.unshare(flags), "unshare")


def own_pid_namespace(fd: int) -> None:
    """Let the next child be born in the namespace `fd` again, so that NEWPID can be asked for once more."""
    _checked(_libc.setns(fd, NEWPID), "setns")


def map_own_user() -> None:
    """In a fresh user namespace: stay who one is, and be nobody else."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{_UID} {_UID} 1"), ("gid_map", f"{_GID} {_GID} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


_UID, _GID = os.getuid(), os.getgid()  # before any namespace: afterwards they read 65534


def private_mounts() -> None:
    """Keep later mounts of this namespace to itself."""
    _checked(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount private")


def set_read_only(path: str, read_only: bool, recursive: bool) -> None:
    """Make a mount, or the whole tree of mounts below it, read-only or writable."""
    value = struct.pack("QQQQ", *((_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)), 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    call = _libc.syscall
    _checked(call(_SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, value, len(value)), f"mount_setattr {path}")


def bind_writable(path: str) -> None:
    """Make one folder writable again below a tree of read-only mounts."""
    name = os.fsencode(path)
    _checked(_libc.mount(name, name, None, MS_BIND, None), f"bind {path}")
    set_read_only(path, False, recursive=False)


def mount_proc() -> None:
    """Show the processes of the own pid namespace only."""
    _checked(_libc.mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None), "mount proc")


def become_nobody(user: int) -> None:
    """Give up root for good, for a user that owns nothing and has no group."""
    os.setgroups([])
    os.setresgid(NO_GROUP, NO_GROUP, NO_GROUP)
    os.setresuid(user, user, user)


def drop_capabilities() -> None:
    """Lose every capability, those over an own user namespace included."""
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, struct.pack("6I", *[0] * 6)), "capset")


def no_new_privileges() -> None:
    """No program that is started from here gains anything by set-user-id bits."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0), "pdeathsig")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")


def limit(cpu_seconds: int, memory: int, processes: int, file_bytes: int, open_files: int) -> None:
    """Resource limits of this process and its descendants; `processes` counts those beside this one."""
    for what, value in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, processes + 1),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))


# -- a filter of system calls, for where namespaces are refused --------------------------------------------------------

# machine -> (audit architecture, numbers of socket, connect, bind, kill, tkill, tgkill, rt_sigqueueinfo,
# rt_tgsigqueueinfo, pidfd_send_signal, ptrace, process_vm_readv, process_vm_writev)
_ARCHITECTURES = {
    "x86_64": (0xC000_003E, (41, 42, 49, 62, 200, 234, 129, 297, 424, 101, 310, 311)),
    "aarch64": (0xC000_00B7, (198, 203, 200, 129, 130, 131, 138, 240, 424, 117, 270, 271)),
}
_X32 = 0x4000_0000  # the second system-call table of x86_64, whose numbers begin here


def filter_calls() -> None:
    """Refuse sockets, signals to other processes and looking into them (EPERM); needs no_new_privileges first.

    Raises OSError also on a machine whose system-call numbers are not listed.
    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(f"no system-call numbers for {machine}")
    architecture, calls = _ARCHITECTURES[machine]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, refuse, kill = 0x7FFF_0000, 0x0005_0001, 0x8000_0000
    n = len(calls)
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, kill), (load, 0, 0, 0)]
    program += [(at_least, n + 1, 0, _X32)]
    program += [(equal, n - i, 0, number) for i, number in enumerate(calls)]
    program += [(answer, 0, 0, allow), (answer, 0, 0, refuse)]
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer)))
    _checked(_libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(header), 0, 0), "seccomp")
