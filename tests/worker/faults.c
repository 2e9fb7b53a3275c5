/* Faults of the machine, switched on and off from outside while a process runs.

   Preloaded into a worker. PENSTOCK_FAULTS names a file with `struct faults`, which all processes map;
   PENSTOCK_FAULTS_ON is the beginning of the paths whose writes fail or are slow. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct faults {
    int32_t disk_full;
    int32_t write_delay_us;
    int64_t clock_offset_s;
    int32_t read_only;
    int32_t unused;
};

static const volatile struct faults *faults;
static const char *start_of_paths;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("PENSTOCK_FAULTS");
    start_of_paths = getenv("PENSTOCK_FAULTS_ON");
    if (!path || !start_of_paths) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *found = mmap(NULL, sizeof(struct faults), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (found != MAP_FAILED) faults = found;
}

/* Delay a write to one of the paths; true if the disk is full, or was mounted anew to be read only. */
static int struck(int fd) {
    if (!faults || (!faults->disk_full && !faults->write_delay_us && !faults->read_only)) return 0;
    char link[40], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    if (strncmp(path, start_of_paths, strlen(start_of_paths)) != 0) return 0;
    if (faults->write_delay_us) usleep((useconds_t)faults->write_delay_us);
    if (faults->disk_full) errno = ENOSPC;
    if (faults->read_only) errno = EROFS;
    return faults->disk_full || faults->read_only;
}

ssize_t write(int fd, const void *data, size_t size) { return struck(fd) ? -1 : REAL(write)(fd, data, size); }

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    return struck(fd) ? -1 : REAL(pwrite64)(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

int fdatasync(int fd) { return struck(fd) ? -1 : REAL(fdatasync)(fd); }

int fsync(int fd) { return struck(fd) ? -1 : REAL(fsync)(fd); }

int clock_gettime(clockid_t which, struct timespec *now) {
    int answer = REAL(clock_gettime)(which, now);
    if (answer == 0 && faults && which == CLOCK_REALTIME) now->tv_sec += faults->clock_offset_s;
    return answer;
}
