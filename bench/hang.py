#!/usr/bin/env python3
"""Runs a command beside a FUSE mount that answers only FUSE_INIT: hang.py MOUNTPOINT COMMAND…

Needs root and a mount namespace of its own (`unshare -m`), so that no other process sees the mount."""
import ctypes, os, struct, subprocess, sys, threading

mountpoint, command = sys.argv[1], sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
if libc.mount(b"nowhere", mountpoint.encode(), b"fuse", 0, options.encode()) != 0:
    sys.exit(f"hang.py: cannot mount: {os.strerror(ctypes.get_errno())}")


def serve():
    while True:
        request = os.read(device, 1 << 17)
        _, code, number = struct.unpack("=IIQ", request[:16])
        if code == 26:  # FUSE_INIT
            os.write(device, struct.pack("=IiQII", 80, 0, number, 7, 31) + bytes(56))


threading.Thread(target=serve, daemon=True).start()
PR_SET_PDEATHSIG, SIGTERM = 1, 15
# A signal to this program must also end the command.
child = subprocess.Popen(command, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, SIGTERM))
try:
    child.wait()
finally:
    os._exit(0)  # closes the device, which releases waiting processes
