// Records every change of the files below a directory, in order. LD_PRELOAD it; a test then repeats the changes up to any
// point, as a disk would hold them after a power loss.
//
// RECORD_DIR  Directory, as an absolute path.
// RECORD_TO   File that gets the records.
//
// A record: kind (1 byte), inode (8), place (8), length (4), content. All numbers are little-endian.
//   C created (path)   W written (bytes)   T length set (place)   S synced   R renamed (from, NUL, to)
//   U unlinked (path)  D directory made (path)  X directory removed (path)  L linked (from, NUL, to)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int to = -1;

static void lock(void) { pthread_mutex_lock(&order); }

// Keeps errno of the call that was recorded.
static void unlock(void) {
    int error = errno;
    pthread_mutex_unlock(&order);
    errno = error;
}

static int is_below(const char *path) {
    const char *directory = getenv("RECORD_DIR");
    return directory && path && strncmp(path, directory, strlen(directory)) == 0;
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

static int is_watched(int fd) {
    int error = errno;
    char path[PATH_MAX];
    int is = path_of(fd, path) && is_below(path);
    errno = error;
    return is;
}

static uint64_t inode(int fd) {
    struct stat facts;
    return fstat(fd, &facts) ? 0 : facts.st_ino;
}

static void all(const void *from, size_t size) {
    while (size) {
        ssize_t done = syscall(SYS_write, to, from, size);
        if (done <= 0) abort();
        from = (const char *)from + done;
        size -= (size_t)done;
    }
}

static void put(char kind, uint64_t file, uint64_t at, const void *content, size_t size) {
    int error = errno;
    const char *path = getenv("RECORD_TO");
    if (to < 0 && path) to = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (to < 0) abort();
    uint32_t length = (uint32_t)size;
    char head[21];
    head[0] = kind;
    memcpy(head + 1, &file, 8);
    memcpy(head + 9, &at, 8);
    memcpy(head + 17, &length, 4);
    all(head, sizeof head);
    all(content, size);
    errno = error;
}

static void put_path(char kind, uint64_t file, const char *path) { put(kind, file, 0, path, strlen(path)); }

static void put_paths(char kind, const char *from, const char *to) {
    char both[2 * PATH_MAX];
    size_t length = strlen(from) + 1;
    memcpy(both, from, length);
    memcpy(both + length, to, strlen(to));
    put(kind, 0, 0, both, length + strlen(to));
}

static uint64_t place(int fd) {
    if (fcntl(fd, F_GETFL) & O_APPEND) {
        struct stat facts;
        return fstat(fd, &facts) ? 0 : (uint64_t)facts.st_size;
    }
    return (uint64_t)lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *from, size_t size) {
    if (!is_watched(fd)) return REAL(write)(fd, from, size);
    lock();
    uint64_t at = place(fd);
    ssize_t done = REAL(write)(fd, from, size);
    if (done > 0) put('W', inode(fd), at, from, (size_t)done);
    unlock();
    return done;
}

// One part at a time: callers repeat short writes.
ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!is_watched(fd)) return REAL(writev)(fd, parts, count);
    for (int n = 0; n < count; n++)
        if (parts[n].iov_len) return write(fd, parts[n].iov_base, parts[n].iov_len);
    return 0;
}

static ssize_t put_at(int fd, const void *from, size_t size, off64_t at) {
    if (!is_watched(fd)) return REAL(pwrite64)(fd, from, size, at);
    lock();
    ssize_t done = REAL(pwrite64)(fd, from, size, at);
    if (done > 0) put('W', inode(fd), (uint64_t)at, from, (size_t)done);
    unlock();
    return done;
}

ssize_t pwrite(int fd, const void *from, size_t size, off_t at) { return put_at(fd, from, size, at); }
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) { return put_at(fd, from, size, at); }

// Callers then read and write.
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *at, size_t size, unsigned flags) {
    if (!is_watched(out)) return REAL(copy_file_range)(in, from, out, at, size, flags);
    errno = ENOSYS;
    return -1;
}
ssize_t sendfile64(int out, int in, off64_t *from, size_t size) {
    ssize_t (*real)(int, int, off64_t *, size_t) = dlsym(RTLD_NEXT, "sendfile64");
    if (!is_watched(out)) return real(out, in, from, size);
    errno = ENOSYS;
    return -1;
}

#define SYNC(name)                                  \
    int name(int fd) {                              \
        if (!is_watched(fd)) return REAL(name)(fd); \
        lock();                                     \
        int done = REAL(name)(fd);                  \
        if (!done) put('S', inode(fd), 0, "", 0);   \
        unlock();                                   \
        return done;                                \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name, type)                                         \
    int name(int fd, type size) {                                    \
        if (!is_watched(fd)) return REAL(name)(fd, size);            \
        lock();                                                      \
        int done = REAL(name)(fd, size);                             \
        if (!done) put('T', inode(fd), (uint64_t)size, "", 0);       \
        unlock();                                                    \
        return done;                                                 \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

static int open_at(int in, const char *path, int flags, mode_t mode) {
    int (*real)(int, const char *, int, ...) = dlsym(RTLD_NEXT, "openat");
    if (!(flags & (O_CREAT | O_TRUNC)) || !is_below(path)) return real(in, path, flags, mode);
    lock();
    int is_known = faccessat(AT_FDCWD, path, F_OK, 0) == 0;
    errno = 0;
    int fd = real(in, path, flags, mode);
    if (fd >= 0 && !is_known) put_path('C', inode(fd), path);
    if (fd >= 0 && is_known && (flags & O_TRUNC)) put('T', inode(fd), 0, "", 0);
    unlock();
    return fd;
}

#define MODE                              \
    mode_t mode = 0;                      \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest;                     \
        va_start(rest, flags);            \
        mode = va_arg(rest, mode_t);      \
        va_end(rest);                     \
    }
int open(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int in, const char *path, int flags, ...) { MODE return open_at(in, path, flags, mode); }
int openat64(int in, const char *path, int flags, ...) { MODE return open_at(in, path, flags | O_LARGEFILE, mode); }

#define NAMES(call, is_ours, record) \
    if (!(is_ours)) return call;     \
    lock();                          \
    int done = call;                 \
    if (!done) record;               \
    unlock();                        \
    return done

int rename(const char *from, const char *to) { NAMES(REAL(rename)(from, to), is_below(to), put_paths('R', from, to)); }
int link(const char *from, const char *to) { NAMES(REAL(link)(from, to), is_below(to), put_paths('L', from, to)); }
int linkat(int in, const char *from, int out, const char *to, int flags) {
    NAMES(REAL(linkat)(in, from, out, to, flags), is_below(to), put_paths('L', from, to));
}
int unlink(const char *path) { NAMES(REAL(unlink)(path), is_below(path), put_path('U', 0, path)); }
int rmdir(const char *path) { NAMES(REAL(rmdir)(path), is_below(path), put_path('X', 0, path)); }
int mkdir(const char *path, mode_t mode) { NAMES(REAL(mkdir)(path, mode), is_below(path), put_path('D', 0, path)); }
int unlinkat(int in, const char *name, int flags) {
    char path[2 * PATH_MAX];
    if (name[0] == '/') snprintf(path, sizeof path, "%s", name);
    else if (in == AT_FDCWD || !path_of(in, path)) path[0] = 0;
    else snprintf(path + strlen(path), PATH_MAX, "/%s", name);
    NAMES(REAL(unlinkat)(in, name, flags), is_below(path), put_path(flags & AT_REMOVEDIR ? 'X' : 'U', 0, path));
}
