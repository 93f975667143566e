// A file layer that fails on purpose. LD_PRELOAD it to make one write below a directory fail.
//
// FAULT_DIR    Only files below this directory are counted.
// FAULT_AT     Number of the call that fails, from 1. 0: none fails.
// FAULT_ERRNO  The error, such as 5 (EIO) or 28 (ENOSPC).
// FAULT_MODE   once: this call. on: this call and all later ones. torn: half of this write, then the error.
// FAULT_LOG    File that gets the number of calls at the end, and the name of the failed one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static int is_below(const char *path) {
    const char *directory = getenv("FAULT_DIR");
    return directory && path && strncmp(path, directory, strlen(directory)) == 0;
}

static int is_watched(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

static void note(const char *call, long count) {
    const char *path = getenv("FAULT_LOG");
    if (!path) return;
    FILE *log = fopen(path, "a");
    if (!log) return;
    fprintf(log, "%s %ld\n", call, count);
    fclose(log);
}

// 0: go on. 1: fail. 2: write half, then fail.
static int fault(const char *call) {
    long at = number("FAULT_AT"), count = atomic_fetch_add(&calls, 1) + 1;
    const char *mode = getenv("FAULT_MODE");
    int is_on = mode && strcmp(mode, "on") == 0;
    if (!at || !(count == at || (is_on && count > at))) return 0;
    if (count == at) note(call, count);
    errno = (int)number("FAULT_ERRNO");
    if (!errno) errno = EIO;
    return mode && strcmp(mode, "torn") == 0 ? 2 : 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WRITE(name, ...)                                                   \
    if (is_watched(fd)) {                                                  \
        int kind = fault(#name);                                           \
        if (kind == 2) {                                                   \
            int error = errno;                                             \
            size = size / 2;                                               \
            if (size) REAL(name)(fd, __VA_ARGS__);                         \
            errno = error;                                                 \
        }                                                                  \
        if (kind) return -1;                                               \
    }                                                                      \
    return REAL(name)(fd, __VA_ARGS__)

ssize_t write(int fd, const void *from, size_t size) { WRITE(write, from, size); }
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) { WRITE(pwrite, from, size, at); }
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) { WRITE(pwrite64, from, size, at); }

#define OTHER(name, ...) \
    if (is_watched(fd) && fault(#name)) return -1; \
    return REAL(name)(__VA_ARGS__)

ssize_t writev(int fd, const struct iovec *parts, int count) { OTHER(writev, fd, parts, count); }
int fsync(int fd) { OTHER(fsync, fd); }
int fdatasync(int fd) { OTHER(fdatasync, fd); }
int ftruncate(int fd, off_t size) { OTHER(ftruncate, fd, size); }
int ftruncate64(int fd, off64_t size) { OTHER(ftruncate64, fd, size); }

int rename(const char *from, const char *to) {
    if (is_below(to) && fault("rename")) return -1;
    return REAL(rename)(from, to);
}

int unlink(const char *path) {
    if (is_below(path) && fault("unlink")) return -1;
    return REAL(unlink)(path);
}

__attribute__((destructor)) static void end(void) { note("calls", atomic_load(&calls)); }
