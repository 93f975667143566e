// A file layer that fails on purpose. LD_PRELOAD it to make one write below a directory fail.
//
// FAULT_DIR    Only files below this directory are counted.
// FAULT_AT     Number of the call that fails, from 1. 0: none fails.
// FAULT_ERRNO  The error, such as 5 (EIO) or 28 (ENOSPC).
// FAULT_MODE   once: this call. on: this call and all later ones. full: this call and all later ones if they write.
//              torn: half of this write, then the error. kill: half of this write, then SIGKILL.
// FAULT_LOG    File that gets the number of calls at the end, and the name of the failed one.
// FAULT_WHILE  File with one line "AT ERRNO MODE". While it exists, it takes the place of the three variables, and calls are
//              counted from its appearance. A test creates and removes it while the program runs.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;
static atomic_long calls_before;

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

// A fault that a file describes while the program runs. Returns whether the file exists.
static int described(long count, long *at, int *error, char mode[8]) {
    const char *path = getenv("FAULT_WHILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) {
        atomic_store(&calls_before, count);
        return 0;
    }
    int found = fscanf(file, "%ld %d %7s", at, error, mode) == 3;
    fclose(file);
    return found;
}

// 0: go on. 1: fail. 2: write half, then fail. 3: write half, then die.
static int fault(const char *call) {
    long count = atomic_fetch_add(&calls, 1) + 1, at = number("FAULT_AT");
    int error = (int)number("FAULT_ERRNO");
    char mode[8] = "";
    strncpy(mode, getenv("FAULT_MODE") ? getenv("FAULT_MODE") : "", sizeof mode - 1);
    if (described(count, &at, &error, mode)) count -= atomic_load(&calls_before);
    int is_full = strcmp(mode, "full") == 0, is_kill = strcmp(mode, "kill") == 0;
    int lasts = is_full || strcmp(mode, "on") == 0;
    if (!at || !(count == at || (lasts && count > at))) return 0;
    if (is_full && !strstr(call, "write")) return 0;
    if (count == at) note(call, count);
    errno = error ? error : EIO;
    return is_kill ? 3 : strcmp(mode, "torn") == 0 ? 2 : 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WRITE(name, ...)                                                   \
    if (is_watched(fd)) {                                                  \
        int kind = fault(#name);                                           \
        if (kind >= 2) {                                                   \
            int error = errno;                                             \
            size = size / 2;                                               \
            if (size) REAL(name)(__VA_ARGS__);                             \
            errno = error;                                                 \
        }                                                                  \
        if (kind == 3) kill(getpid(), SIGKILL);                            \
        if (kind) return -1;                                               \
    }                                                                      \
    return REAL(name)(__VA_ARGS__)

ssize_t write(int fd, const void *from, size_t size) { WRITE(write, fd, from, size); }
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) { WRITE(pwrite, fd, from, size, at); }
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) { WRITE(pwrite64, fd, from, size, at); }

// Whether a call that writes nothing fails.
static int fails(const char *call) {
    int kind = fault(call);
    if (kind == 3) kill(getpid(), SIGKILL);
    return kind;
}

#define OTHER(name, ...) \
    if (is_watched(fd) && fails(#name)) return -1; \
    return REAL(name)(__VA_ARGS__)

ssize_t writev(int fd, const struct iovec *parts, int count) { OTHER(writev, fd, parts, count); }
int fsync(int fd) { OTHER(fsync, fd); }
int fdatasync(int fd) { OTHER(fdatasync, fd); }
int ftruncate(int fd, off_t size) { OTHER(ftruncate, fd, size); }
int ftruncate64(int fd, off64_t size) { OTHER(ftruncate64, fd, size); }

int rename(const char *from, const char *to) {
    if (is_below(to) && fails("rename")) return -1;
    return REAL(rename)(from, to);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    if (is_below(to) && fails("linkat")) return -1;
    return REAL(linkat)(from_dir, from, to_dir, to, flags);
}

int mkdir(const char *path, mode_t mode) {
    if (is_below(path) && fails("mkdir")) return -1;
    return REAL(mkdir)(path, mode);
}

ssize_t copy_file_range(int from, off64_t *from_at, int fd, off64_t *at, size_t size, unsigned flags) {
    WRITE(copy_file_range, from, from_at, fd, at, size, flags);
}

int unlink(const char *path) {
    if (is_below(path) && fails("unlink")) return -1;
    return REAL(unlink)(path);
}

__attribute__((destructor)) static void end(void) { note("calls", atomic_load(&calls)); }
