"""systemd and logind as far as their collectors ask them, on a bus of the test's own."""

import sys

import dbus
import dbus.bus
import dbus.mainloop.glib
import dbus.service
from gi.repository import GLib

SYSTEMD = "org.freedesktop.systemd1"
LOGIND = "org.freedesktop.login1"
PROPERTIES = "org.freedesktop.DBus.Properties"
UNLIMITED = dbus.UInt64(2**64 - 1)

# Name, whether it is loaded, state, and the properties by interface.
UNITS = [
    ("slurmd.service", "loaded", "active",
     {"Service": {"Type": "notify", "NRestarts": dbus.UInt32(3), "TasksCurrent": dbus.UInt64(12), "TasksMax": UNLIMITED}}),
    ("backup.service", "loaded", "failed",
     {"Service": {"Type": "oneshot", "NRestarts": dbus.UInt32(0), "TasksCurrent": UNLIMITED, "TasksMax": dbus.UInt64(4915)}}),
    ("nfs-mountd.service", "not-found", "inactive", {}),
    ("backup.timer", "loaded", "active", {"Timer": {"LastTriggerUSec": dbus.UInt64(1760000000123456)}}),
    ("ssh.socket", "loaded", "active",
     {"Socket": {"NAccepted": dbus.UInt32(7), "NConnections": dbus.UInt32(2), "NRefused": dbus.UInt32(1)}}),
    ("home.mount", "loaded", "active", {"Mount": {"Type": "nfs4"}}),
    ("multi-user.target", "loaded", "reloading", {}),
]
SESSIONS = [("1", "seat0", False, "tty", "user"), ("2", "", True, "tty", "user"), ("3", "", True, "strange", "user")]


def escape(name):
    """As systemd makes a path of a unit's name."""
    return "".join(c if c.isalnum() else f"_{ord(c):02x}" for c in name)


class Object(dbus.service.Object):
    """Something that has properties."""

    def __init__(self, bus, path, properties):
        super().__init__(bus, path)
        self.properties = properties

    @dbus.service.method(PROPERTIES, in_signature="ss", out_signature="v")
    def Get(self, interface, name):
        found = self.properties.get(interface, {})
        if name not in found:
            raise dbus.exceptions.DBusException(f"no {name}", name="org.freedesktop.DBus.Error.UnknownProperty")
        return found[name]


class Systemd(Object):
    @dbus.service.method(SYSTEMD + ".Manager", out_signature="a(ssssssouso)")
    def ListUnits(self):
        path = "/org/freedesktop/systemd1/unit/"
        return [(name, "", loaded, state, "", "", path + escape(name), 0, "", "/") for name, loaded, state, _ in UNITS]


class Logind(Object):
    @dbus.service.method(LOGIND + ".Manager", out_signature="a(so)")
    def ListSeats(self):
        return [("seat0", "/org/freedesktop/login1/seat/seat0")]

    @dbus.service.method(LOGIND + ".Manager", out_signature="a(susso)")
    def ListSessions(self):
        return [(n, 1000, "ada", seat, f"/org/freedesktop/login1/session/_3{n}") for n, seat, *_ in SESSIONS]


dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
bus = dbus.bus.BusConnection(sys.argv[1])
names = [dbus.service.BusName(name, bus) for name in (SYSTEMD, LOGIND)]
manager = {"Version": "252.22-1~deb12u1", "Virtualization": "kvm", "SystemState": "degraded"}
objects = [Systemd(bus, "/org/freedesktop/systemd1", {SYSTEMD + ".Manager": manager}), Logind(bus, "/org/freedesktop/login1", {})]
for name, _, _, interfaces in UNITS:
    properties = {f"{SYSTEMD}.{interface}": values for interface, values in interfaces.items()}
    properties[SYSTEMD + ".Unit"] = {"ActiveEnterTimestamp": dbus.UInt64(1750000000000000)}
    objects.append(Object(bus, "/org/freedesktop/systemd1/unit/" + escape(name), properties))
for number, _, remote, kind, user in SESSIONS:
    properties = {"Remote": dbus.Boolean(remote), "Type": kind, "Class": user}
    objects.append(Object(bus, f"/org/freedesktop/login1/session/_3{number}", {LOGIND + ".Session": properties}))
print("ready", flush=True)
GLib.MainLoop().run()
