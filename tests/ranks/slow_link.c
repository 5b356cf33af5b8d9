/* SPDX-License-Identifier: Apache-2.0 */
// A cable between two network namespaces, in user space, that delays its frames and limits their
// rate: for kernels without netem. It has two TAP devices, one in each namespace. A frame from one
// device is written to the other when a line of this rate and delay would have delivered it.
//
//   slow_link NAMESPACE DEVICE NAMESPACE DEVICE BITS_A_SECOND DELAY_SECONDS
//
// The namespaces are those of `ip netns`. Prints "ready" once both devices exist, and runs until it
// is killed. Like a switch, it drops frames that would have to wait for longer than 50 ms.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { kMaxFrame = 65536 + 64, kFrames = 4096 };
static const double kMaxWait = 0.050;

static void Fail(const char* what) {
  fprintf(stderr, "slow_link: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void Enter(const char* name) {
  char path[256];
  snprintf(path, sizeof(path), "/run/netns/%s", name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) Fail(path);
  close(fd);
}

static int OpenTap(const char* name_space, const char* device) {
  Enter(name_space);
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) Fail("/dev/net/tun");
  struct ifreq request;
  memset(&request, 0, sizeof(request));
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  if (ioctl(fd, TUNSETIFF, &request) != 0) Fail(device);
  return fd;
}

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

struct Frame {
  double due;
  int bytes;
  char* data;
};

// One direction: a queue of frames, first in, first out.
struct Direction {
  int from, to;
  double free_at;  // time when the line has sent all frames so far
  struct Frame frames[kFrames];
  unsigned first, count;
};

static void Take(struct Direction* line, double rate, double delay) {
  static char buffer[kMaxFrame];
  for (;;) {
    const ssize_t n = read(line->from, buffer, sizeof(buffer));
    if (n <= 0) {
      // A device that is not up yet returns no frames.
      if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EIO) Fail("read");
      return;
    }
    const double now = Now();
    if (line->free_at < now) line->free_at = now;
    if (line->count == kFrames || line->free_at - now > kMaxWait) continue;
    line->free_at += (double)n * 8 / rate;
    struct Frame* frame = &line->frames[(line->first + line->count++) % kFrames];
    frame->due = line->free_at + delay;
    frame->bytes = (int)n;
    frame->data = malloc((size_t)n);
    if (frame->data == NULL) Fail("memory");
    memcpy(frame->data, buffer, (size_t)n);
  }
}

static void Deliver(struct Direction* line) {
  while (line->count > 0 && line->frames[line->first].due <= Now()) {
    struct Frame* frame = &line->frames[line->first];
    // A device that is down or full drops the frame, like a cable.
    if (write(line->to, frame->data, (size_t)frame->bytes) < 0 && errno != EAGAIN && errno != EIO) {
      Fail("write");
    }
    free(frame->data);
    line->first = (line->first + 1) % kFrames;
    --line->count;
  }
}

int main(int argc, char** argv) {
  if (argc != 7) {
    fprintf(stderr,
            "usage: slow_link NAMESPACE DEVICE NAMESPACE DEVICE BITS_A_SECOND DELAY_SECONDS\n");
    return 2;
  }
  const double rate = atof(argv[5]), delay = atof(argv[6]);
  if (!(rate > 0) || !(delay >= 0)) {
    fprintf(stderr, "slow_link: the rate is positive, the delay is not negative\n");
    return 2;
  }
  prctl(PR_SET_TIMERSLACK, 1000UL);
  const int a = OpenTap(argv[1], argv[2]), b = OpenTap(argv[3], argv[4]);
  static struct Direction lines[2];
  lines[0].from = lines[1].to = a;
  lines[0].to = lines[1].from = b;
  puts("ready");
  fflush(stdout);
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (timer < 0) Fail("timerfd");
  for (;;) {
    double due = 0;
    for (int i = 0; i < 2; ++i) {
      Take(&lines[i], rate, delay);
      Deliver(&lines[i]);
      if (lines[i].count > 0) {
        const double next = lines[i].frames[lines[i].first].due;
        if (due == 0 || next < due) due = next;
      }
    }
    struct itimerspec when;
    memset(&when, 0, sizeof(when));
    when.it_value.tv_sec = (time_t)due;
    when.it_value.tv_nsec = (long)((due - (double)(time_t)due) * 1e9);
    if (due > 0 && when.it_value.tv_sec == 0 && when.it_value.tv_nsec == 0)
      when.it_value.tv_nsec = 1;
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL) != 0) Fail("timerfd");
    struct pollfd events[3] = {{a, POLLIN, 0}, {b, POLLIN, 0}, {timer, POLLIN, 0}};
    if (poll(events, 3, -1) < 0 && errno != EINTR) Fail("poll");
  }
}
