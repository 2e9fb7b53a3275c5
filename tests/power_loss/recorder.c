/* Records each change of a file below PENSTOCK_RECORD_ROOT, in order, in the file PENSTOCK_RECORD_LOG.

   Preloaded into a process, it stands in for the calls of the C library that change files. A record is
   `struct head`, the path, and the data; `recording.py` reads it. Calls of several threads are recorded in
   the order in which they took effect, as one lock is held for the call and its record. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct head {
    char what; /* w write, t truncate, s sync, c create, r rename, u unlink */
    uint16_t path;
    uint64_t offset;
    uint32_t data;
} __attribute__((packed));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static char root[PATH_MAX];
static size_t root_length;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void start(void) {
    const char *log = getenv("PENSTOCK_RECORD_LOG"), *below = getenv("PENSTOCK_RECORD_ROOT");
    if (!log || !below) return;
    snprintf(root, sizeof root, "%s/", below);
    root_length = strlen(root);
    log_fd = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int recorded(const char *path) {
    return log_fd >= 0 && strncmp(path, root, root_length) == 0;
}

static int path_of(int fd, char *path) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return recorded(path);
}

static void record(char what, const char *path, uint64_t offset, const void *data, size_t size) {
    struct head head = {what, (uint16_t)strlen(path), offset, (uint32_t)size};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)path, head.path}, {(void *)data, size}};
    if (writev(log_fd, parts, 3) < 0) abort();
}

#define LOCKED(type, call, condition, ...)                                                            \
    pthread_mutex_lock(&lock);                                                                        \
    type answer = call;                                                                               \
    if (condition) { __VA_ARGS__; }                                                                   \
    pthread_mutex_unlock(&lock);                                                                      \
    return answer

ssize_t write(int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return REAL(write)(fd, data, size);
    LOCKED(ssize_t, REAL(write)(fd, data, size), answer > 0,
           record('w', path, (uint64_t)lseek(fd, 0, SEEK_CUR) - (uint64_t)answer, data, (size_t)answer));
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return REAL(pwrite64)(fd, data, size, offset);
    LOCKED(ssize_t, REAL(pwrite64)(fd, data, size, offset), answer > 0,
           record('w', path, (uint64_t)offset, data, (size_t)answer));
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

int ftruncate64(int fd, off64_t size) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return REAL(ftruncate64)(fd, size);
    LOCKED(int, REAL(ftruncate64)(fd, size), answer == 0, record('t', path, (uint64_t)size, NULL, 0));
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int fsync(int fd) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return REAL(fsync)(fd);
    LOCKED(int, REAL(fsync)(fd), answer == 0, record('s', path, 0, NULL, 0));
}

int fdatasync(int fd) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return REAL(fdatasync)(fd);
    LOCKED(int, REAL(fdatasync)(fd), answer == 0, record('s', path, 0, NULL, 0));
}

int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    if (!recorded(path) || !(flags & (O_CREAT | O_TRUNC))) return REAL(open64)(path, flags, mode);
    pthread_mutex_lock(&lock);
    int is_new = access(path, F_OK) != 0;
    int answer = REAL(open64)(path, flags, mode);
    if (answer >= 0 && is_new) record('c', path, 0, NULL, 0);
    if (answer >= 0 && !is_new && flags & O_TRUNC) record('t', path, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return answer;
}

int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    return open64(path, flags, mode);
}

int rename(const char *from, const char *to) {
    if (!recorded(to)) return REAL(rename)(from, to);
    LOCKED(int, REAL(rename)(from, to), answer == 0, record('r', from, 0, to, strlen(to)));
}

int mknod(const char *path, mode_t mode, dev_t device) {
    if (!recorded(path)) return REAL(mknod)(path, mode, device);
    LOCKED(int, REAL(mknod)(path, mode, device), answer == 0, record('c', path, 0, NULL, 0));
}

int unlink(const char *path) {
    if (!recorded(path)) return REAL(unlink)(path);
    LOCKED(int, REAL(unlink)(path), answer == 0, record('u', path, 0, NULL, 0));
}
