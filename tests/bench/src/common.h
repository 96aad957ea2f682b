// What mock and load generator share: clock, epoll, buffers, HTTP heads.
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull
#define NS_PER_US 1000ull
#define READ_ROOM 32768 // free space to offer to each recv

typedef struct {
  char *data;
  size_t len, cap;
} buffer;

typedef struct {
  size_t length; // of the head, with the empty line; 0: not complete yet
  size_t content_length;
  int has_length, chunked, close;
} http_head;

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static inline void buffer_room(buffer *b, size_t room) {
  if (b->cap - b->len < room) {
    b->cap = (b->len + room) * 2;
    b->data = realloc(b->data, b->cap);
  }
}

static inline void buffer_add(buffer *b, const char *bytes, size_t count) {
  buffer_room(b, count);
  memcpy(b->data + b->len, bytes, count);
  b->len += count;
}

// Reads all there is. Returns 1 when the peer has closed or the connection is broken.
static inline int buffer_recv(buffer *b, int fd) {
  for (;;) {
    buffer_room(b, READ_ROOM);
    size_t room = b->cap - b->len;
    ssize_t got = recv(fd, b->data + b->len, room, 0);
    if (got > 0) {
      b->len += got;
      if ((size_t)got < room) return 0;
    } else {
      return !(got < 0 && (errno == EAGAIN || errno == EINTR));
    }
  }
}

static inline void watch(int epoll, int op, int fd, void *owner, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = owner};
  epoll_ctl(epoll, op, fd, &event);
}

static inline void no_delay(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline struct sockaddr_in loopback(int port) {
  return (struct sockaddr_in){
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline http_head parse_head(const char *data, size_t len) {
  http_head head = {0};
  const char *end = len < 4 ? NULL : memmem(data, len, "\r\n\r\n", 4);
  if (!end) return head;
  head.length = end + 4 - data;
  for (const char *line = data; line < end;) {
    if (!strncasecmp(line, "content-length:", 15)) {
      head.has_length = 1;
      head.content_length = strtoull(line + 15, NULL, 10);
    } else if (!strncasecmp(line, "transfer-encoding:", 18)) {
      head.chunked = 1;
    } else if (!strncasecmp(line, "connection: close", 17)) {
      head.close = 1;
    }
    const char *next = memmem(line, end + 2 - line, "\r\n", 2);
    if (!next) break;
    line = next + 2;
  }
  return head;
}
