"""Starts the system unit's headend as systemd would, in a root of its own over this machine's, and makes calls through it.

Arguments: an empty folder, the folder of the units, headend, a folder with uv and uvx, a configuration, then one NAME=JSON for each
call. Runs as root in mount, process and IPC namespaces. `DROP_IN` holds variables for the daemon, one a line, as a drop-in would.

Everything is read from the unit. A setting in none of the lists below stops the test. Those in LEFT_OUT need a manager or a cgroup,
or are filters for system calls that no server of npm or PyPI makes.
"""

import ctypes
import errno
import os
import pwd
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

PLAYED = """ExecStart User Group UMask StateDirectory StateDirectoryMode CacheDirectory RuntimeDirectory ConfigurationDirectory
Environment NoNewPrivileges CapabilityBoundingSet AmbientCapabilities ProtectSystem ProtectHome PrivateTmp PrivateDevices PrivateMounts
PrivateIPC ProtectKernelTunables ProtectProc LimitNOFILE LimitCORE RestrictNamespaces RestrictAddressFamilies SystemCallFilter
SystemCallErrorNumber""".split()
LEFT_OUT = """Type NotifyAccess ExecReload Restart RestartSec RestartPreventExitStatus TimeoutStartSec TimeoutStopSec KillMode OOMPolicy
Delegate TasksMax MemoryHigh MemoryMax DevicePolicy ProtectKernelModules ProtectKernelLogs ProtectClock ProtectHostname RestrictSUIDSGID
RestrictRealtime LockPersonality RemoveIPC KeyringMode SystemCallArchitectures""".split()
PATIENCE = 240


def read(path):
    """The settings of [Service], each with its values."""
    section, found = "", {}
    for line in open(path, encoding="utf-8"):
        line = line.strip()
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    unknown = [name for name in found if name not in PLAYED + LEFT_OUT]
    assert not unknown, f"settings that this test does not know: {unknown}"
    return found


def run(*words, **more):
    return subprocess.run(words, check=True, **more)


def one(unit, name, default=""):
    return unit.get(name, [default])[-1]


def is_on(unit, name):
    return one(unit, name) == "yes"


def mount(kind, place, options=""):
    os.makedirs(place, exist_ok=True)
    run("mount", "-t", kind, *(["-o", options] if options else []), kind, place)


def bind(source, place, read_only=False):
    run("mount", "--bind", source, place)
    if read_only:
        run("mount", "-o", "remount,bind,ro", place)


def build(scratch, units, unit, headend, uv, config):
    """The root with the package's files in it, and around them what the unit allows."""
    mount("tmpfs", scratch)
    for name in ["upper", "work", "root"]:
        os.mkdir(f"{scratch}/{name}")
    root = f"{scratch}/root"
    run("mount", "-t", "overlay", "-o", f"lowerdir=/,upperdir={scratch}/upper,workdir={scratch}/work", "overlay", root)
    shutil.copy(headend, f"{root}/usr/bin/headend")
    for program in ["uv", "uvx"]:
        shutil.copy(f"{uv}/{program}", f"{root}/usr/local/bin/{program}")
    # Files that may be mounts of their own.
    for name in ["resolv.conf", "hosts"]:
        text = open(f"/etc/{name}", "rb").read()
        open(f"{root}/etc/{name}", "wb").write(text)
    run("systemd-sysusers", f"--root={root}", os.path.abspath(f"{units}/headend.sysusers"))
    os.makedirs(f"{root}/etc/headend", exist_ok=True)
    shutil.copy(config, f"{root}/etc/headend/headend.toml")

    mount("proc", f"{root}/proc", "hidepid=2" if one(unit, "ProtectProc") == "invisible" else "")
    if is_on(unit, "ProtectKernelTunables"):
        bind(f"{root}/proc/sys", f"{root}/proc/sys", read_only=True)
    bind("/sys", f"{root}/sys", read_only=True)
    assert is_on(unit, "PrivateDevices") and is_on(unit, "PrivateTmp") and one(unit, "ProtectHome") == "yes"
    mount("tmpfs", f"{root}/dev", "mode=755")
    for name in ["null", "zero", "full", "random", "urandom", "tty"]:
        open(f"{root}/dev/{name}", "w").close()
        bind(f"/dev/{name}", f"{root}/dev/{name}")
    mount("tmpfs", f"{root}/dev/shm", "mode=1777")
    mount("tmpfs", f"{root}/run", "mode=755")
    for place in ["tmp", "var/tmp"]:
        mount("tmpfs", f"{root}/{place}", "mode=1777")
    for place in ["home", "root", "run/user"]:
        mount("tmpfs", f"{root}/{place}", "mode=000,ro")

    line = next(line for line in open(f"{root}/etc/passwd") if line.startswith(one(unit, "User") + ":"))
    user, group = (int(field) for field in line.split(":")[2:4])
    folders = {}
    for name, parent, mode in [
        ("StateDirectory", "/var/lib", one(unit, "StateDirectoryMode", "0755")),
        ("CacheDirectory", "/var/cache", "0755"),
        ("RuntimeDirectory", "/run", "0755"),
    ]:
        for folder in one(unit, name).split():
            place = f"{root}{parent}/{folder}"
            os.makedirs(place, exist_ok=True)
            os.chown(place, user, group)
            os.chmod(place, int(mode, 8))
            bind(place, place)
            folders[name] = f"{parent}/{folder}"
    folders["ConfigurationDirectory"] = "/etc/" + one(unit, "ConfigurationDirectory")
    assert one(unit, "ProtectSystem") == "strict"
    run("mount", "-o", "remount,bind,ro", root)
    return root, user, group, folders


class Comparison(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def calls_of(group):
    """The names in a group of system calls, as systemd has them."""
    text = run("systemd-analyze", "syscall-filter", group, stdout=subprocess.PIPE, text=True).stdout
    names = set()
    for line in text.splitlines()[1:]:
        name = line.strip()
        if name.startswith("@"):
            names |= calls_of(name)
        elif re.fullmatch("[a-z0-9_]+", name):
            names.add(name)
    return names


def allowed_calls(unit):
    allowed = set()
    for value in unit["SystemCallFilter"]:
        names = set()
        for word in value.lstrip("~").split():
            names |= calls_of(word) if word.startswith("@") else {word}
        allowed = allowed - names if value.startswith("~") else allowed | names
    # The manager always allows those without which no program starts.
    return allowed | calls_of("@default")


def filtered(unit, names):
    """A filter that allows these system calls, and of sockets and namespaces those that the unit allows."""
    lib = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_init.argtypes = [ctypes.c_uint32]
    lib.seccomp_load.argtypes = [ctypes.c_void_p]
    lib.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(Comparison)]
    assert one(unit, "SystemCallErrorNumber") == "EPERM"
    allow, refuse = 0x7FFF0000, 0x00050000
    equal, masked = 4, 7
    context = lib.seccomp_init(refuse | errno.EPERM)

    def rule(action, name, *comparisons):
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            assert lib.seccomp_rule_add_array(context, action, number, len(comparisons), (Comparison * max(1, len(comparisons)))(*comparisons)) == 0, name

    families = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
    for name in names:
        if name == "socket":
            for family in one(unit, "RestrictAddressFamilies").split():
                rule(allow, name, Comparison(0, equal, families[family], 0))
        elif name == "clone" and is_on(unit, "RestrictNamespaces"):
            rule(allow, name, Comparison(0, masked, 0x7E020080, 0))
        elif name == "clone3" and is_on(unit, "RestrictNamespaces"):
            # Its flags lie in memory, so that programs are sent back to clone.
            rule(refuse | errno.ENOSYS, name)
        elif not (name in ["unshare", "setns"] and is_on(unit, "RestrictNamespaces")):
            rule(allow, name)
    return lambda: lib.seccomp_load(context)


def start(root, unit, user, group, folders):
    words = one(unit, "ExecStart").split()
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    env |= {"USER": one(unit, "User"), "LOGNAME": one(unit, "User"), "HOME": "/", "SHELL": "/usr/sbin/nologin"}
    for name, folder in folders.items():
        env[re.sub("(?<!^)(?=[A-Z])", "_", name).upper()] = folder
    for value in unit["Environment"] + os.environ.get("DROP_IN", "").split("\n"):
        env |= dict(word.split("=", 1) for word in value.split())
    names = allowed_calls(unit)
    load = filtered(unit, names)
    log = open("/dev/stderr", "w")
    child = os.fork()
    if child:
        return child
    os.chroot(root)
    os.chdir("/")
    os.umask(int(one(unit, "UMask", "0022"), 8))
    # A container may not go beyond its own limit.
    files = min(int(one(unit, "LimitNOFILE")), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    resource.setrlimit(resource.RLIMIT_CORE, (int(one(unit, "LimitCORE")),) * 2)
    libc = ctypes.CDLL(None)
    assert one(unit, "CapabilityBoundingSet", "all") == "" and one(unit, "AmbientCapabilities", "all") == ""
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    assert is_on(unit, "NoNewPrivileges") and libc.prctl(38, 1, 0, 0, 0) == 0
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    os.setsid()
    assert load() == 0, "the filter"
    os.execve(words[0], words, env)


def inside(root, *words):
    more = {"env": {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(["chroot", root, *words], check=False, **more)


def main():
    scratch, units, headend, uv, config, *calls = sys.argv[1:]
    unit = read(f"{units}/headend.service")
    root, user, group, folders = build(scratch, units, unit, headend, uv, config)
    daemon = start(root, unit, user, group, folders)
    begun = time.monotonic()
    try:
        for call in calls:
            name, _, arguments = call.partition("=")
            while True:
                called = inside(root, "/usr/bin/headend", "call", name, arguments)
                if called.returncode == 0:
                    break
                if time.monotonic() - begun > PATIENCE or os.waitpid(daemon, os.WNOHANG) != (0, 0):
                    status = inside(root, "/usr/bin/headend", "status", name.split("__")[0])
                    print(f"{name}: {called.stdout}\n{status.stdout}")
                    return 1
                time.sleep(1)
            print(f"{name} after {time.monotonic() - begun:.1f} s: {called.stdout.strip()[:100]}")
        for name in ["StateDirectory", "CacheDirectory"]:
            for folder, below, files in os.walk(root + folders[name]):
                for entry in below + files:
                    owner = os.lstat(f"{folder}/{entry}").st_uid
                    assert owner == user, f"{folder}/{entry} is of {owner}"
            print(f"{name}: {' '.join(sorted(os.listdir(root + folders[name])))}")
        for folder in sorted(os.listdir(root + folders["CacheDirectory"])):
            print(f"cache {folder}: {' '.join(sorted(os.listdir(root + folders['CacheDirectory'] + '/' + folder)))}")
    finally:
        try:
            os.kill(daemon, signal.SIGTERM)
            os.waitpid(daemon, 0)
        except (ProcessLookupError, ChildProcessError):
            print("the daemon has ended by itself")
    print("done")
    return 0


sys.exit(main())
