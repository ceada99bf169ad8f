// Copyright 2026 jetson_dnn_rt authors
// SPDX-License-Identifier: Apache-2.0

// A disk that fails, for LD_PRELOAD: calls on files below a folder return an error.
//
// FAILING_DISK="CALLS ERRNO BYTES FOLDER", read at every call: CALLS is "write", "sync" or "read",
// the first BYTES bytes of the process are written as on a sound disk. FAILING_DISK_SWITCH names a
// file while which exists the disk fails; without it the disk always fails.

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
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_llong done;

#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

// Bytes of this call that the disk still takes, or -1 with errno where it fails, `wanted` where
// the file is not of this disk.
static long long allow(const char *calls, int file, long long wanted)
{
  const char *text = getenv("FAILING_DISK");
  char kind[8], folder[PATH_MAX], link[64], path[PATH_MAX];
  int code;
  long long bytes;
  if (!text || sscanf(text, "%7s %d %lld %4095[^\n]", kind, &code, &bytes, folder) != 4 ||
      strcmp(kind, calls))
    return wanted;
  const int before = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = 0;
  const char *gate = getenv("FAILING_DISK_SWITCH");
  const int sound = strncmp(path, folder, strlen(folder)) || (gate && access(gate, F_OK));
  errno = before;
  if (sound)
    return wanted;
  const long long left = bytes - atomic_fetch_add(&done, wanted);
  if (left > 0)
    return left < wanted ? left : wanted;
  errno = code;
  return -1;
}

ssize_t write(int file, const void *data, size_t size)
{
  REAL(write);
  const long long some = size ? allow("write", file, size) : 0;
  return some < 0 ? -1 : real(file, data, some);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t place)
{
  REAL(pwrite);
  const long long some = size ? allow("write", file, size) : 0;
  return some < 0 ? -1 : real(file, data, some, place);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t place)
{
  REAL(pwrite64);
  const long long some = size ? allow("write", file, size) : 0;
  return some < 0 ? -1 : real(file, data, some, place);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
  REAL(writev);
  long long size = 0;
  for (int part = 0; part < count; part++)
    size += parts[part].iov_len;
  const long long some = size ? allow("write", file, size) : 0;
  if (some == size)
    return real(file, parts, count);
  return some < 0 ? -1 : write(file, parts[0].iov_base, parts[0].iov_len);
}

ssize_t sendfile(int out, int in, off_t *place, size_t size)
{
  REAL(sendfile);
  return allow("write", out, size) < 0 ? -1 : real(out, in, place, size);
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags)
{
  REAL(copy_file_range);
  return allow("write", out, size) < 0 ? -1 : real(in, from, out, to, size, flags);
}

int fsync(int file)
{
  REAL(fsync);
  return allow("sync", file, 1) < 0 ? -1 : real(file);
}

int fdatasync(int file)
{
  REAL(fdatasync);
  return allow("sync", file, 1) < 0 ? -1 : real(file);
}

ssize_t read(int file, void *data, size_t size)
{
  REAL(read);
  const long long some = size ? allow("read", file, size) : 0;
  return some < 0 ? -1 : real(file, data, some);
}

ssize_t pread(int file, void *data, size_t size, off_t place)
{
  REAL(pread);
  const long long some = size ? allow("read", file, size) : 0;
  return some < 0 ? -1 : real(file, data, some, place);
}

ssize_t pread64(int file, void *data, size_t size, off64_t place)
{
  REAL(pread64);
  const long long some = size ? allow("read", file, size) : 0;
  return some < 0 ? -1 : real(file, data, some, place);
}

// glibc's streams write with calls of their own: those for writing go through this `write`.

static ssize_t put(void *cookie, const char *data, size_t size)
{
  const ssize_t some = write((int)(long)cookie, data, size);
  return some < 0 ? 0 : some;  // how a stream is told of an error
}

static int move(void *cookie, off64_t *place, int whence)
{
  const off64_t now = lseek64((int)(long)cookie, *place, whence);
  if (now < 0)
    return -1;
  *place = now;
  return 0;
}

static int end(void *cookie)
{
  return close((int)(long)cookie);
}

static FILE *open_stream(const char *path, const char *mode)
{
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const cookie_io_functions_t calls = {.write = put, .seek = move, .close = end};
  return file < 0 ? NULL : fopencookie((void *)(long)file, mode, calls);
}

FILE *fopen(const char *path, const char *mode)
{
  REAL(fopen);
  return mode[0] == 'w' && !strchr(mode, '+') && getenv("FAILING_DISK") ? open_stream(path, mode)
                                                                         : real(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
  REAL(fopen64);
  return mode[0] == 'w' && !strchr(mode, '+') && getenv("FAILING_DISK") ? open_stream(path, mode)
                                                                         : real(path, mode);
}
