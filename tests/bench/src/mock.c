// Mock OpenAI-style backend: one thread, epoll, HTTP/1.1 keep-alive.
//   mock -p 9101 -p 9102 [-n chunks] [-d delay_us] [-y 1]
// POST (any path)  -> JSON (~600 B) or, when the body has "stream":true, SSE:
//   N chunks (~220 B each, content carries "t=<CLOCK_MONOTONIC ns, 19 digits>"), a usage chunk, [DONE].
// GET /ctl?chunks=64&delay=20000&sync=0  changes the stream shape at run time (reply: {"reqs":..})
// GET /health /v1/models /metrics, anything else GET -> small JSON that the routers accept.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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
typedef struct conn {
  int fd, listener, port;
  char *b;
  size_t len, cap, need, head;
  int chunked;
  int streaming, idx, n;
  uint64_t due;
  char out[1024];
  int outlen, outoff;
  int wantw;
  struct conn *nx, *pv;
} conn;
static int ep, nchunks = 64, syncmode = 0;
static uint64_t delay_ns = 0;
static uint64_t nreq = 0, running = 0;
static conn active; // circular list of streams that wait on a timer
static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static char resp[2048];
static int resplen;
static const char SHEAD[] = "HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: text/event-stream; "
                            "charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
static char tail[1200];
static int taillen;
static int mk(char *o, const char *payload) {
  int n = strlen(payload);
  return sprintf(o, "%x\r\n%s\r\n", n, payload);
}
static void init(void) {
  char body[1024];
  int n =
      sprintf(body, "{\"id\":\"chatcmpl-mock0000000000000001\",\"object\":\"chat.completion\",\"created\":1764560000,"
                    "\"model\":\"mock-model\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                    "\"content\":\"The quick brown fox jumps over the lazy dog while the gateway measures how long it "
                    "takes to carry this answer from a backend to a client, byte for byte, with no change at all, so "
                    "that the cost of the hop is plain to see and nothing else is in the "
                    "way.\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_"
                    "tokens\":256,\"completion_tokens\":52,\"total_tokens\":308},\"system_fingerprint\":\"fp_mock\"}");
  resplen =
      sprintf(resp, "HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s",
              n, body);
  taillen = mk(tail, "data: "
                     "{\"id\":\"chatcmpl-mock0000000000000001\",\"object\":\"chat.completion.chunk\",\"created\":"
                     "1764560000,\"model\":\"mock-model\",\"choices\":[],\"usage\":{\"prompt_tokens\":256,\"completion_"
                     "tokens\":64,\"total_tokens\":320}}\n\n");
  taillen += mk(tail + taillen, "data: [DONE]\n\n");
  taillen += sprintf(tail + taillen, "0\r\n\r\n");
}
static void mod(conn *c, uint32_t e) {
  struct epoll_event ev = {.events = e, .data.ptr = c};
  epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &ev);
}
static void unlink_c(conn *c) {
  if (c->nx) {
    c->pv->nx = c->nx;
    c->nx->pv = c->pv;
    c->nx = c->pv = 0;
  }
}
static void link_c(conn *c) {
  if (c->nx) {
    return;
  }
  c->nx = &active;
  c->pv = active.pv;
  active.pv->nx = c;
  active.pv = c;
}
static void closec(conn *c) {
  if (c->streaming) {
    running--;
  }
  unlink_c(c);
  close(c->fd);
  free(c->b);
  free(c);
}
static void process(conn *c);
static int sendall_small(conn *c, const char *p, int n) { // non-stream: fits the socket buffer
  while (n > 0) {
    ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);
    if (k < 0) {
      if (errno == EAGAIN || errno == EINTR) {
        usleep(100);
        continue;
      }
      return -1;
    }
    p += k;
    n -= k;
  }
  return 0;
}
static uint64_t nextdue(uint64_t t) {
  if (!delay_ns) {
    return t;
  }
  if (syncmode) {
    return (t / delay_ns + 1) * delay_ns;
  }
  return t + delay_ns;
}
// push the stream on as far as it goes; returns -1 when the connection died
static int pump(conn *c, uint64_t t) {
  for (;;) {
    if (c->outoff < c->outlen) {
      ssize_t k = send(c->fd, c->out + c->outoff, c->outlen - c->outoff, MSG_NOSIGNAL);
      if (k < 0) {
        if (errno == EAGAIN) {
          if (!c->wantw) {
            c->wantw = 1;
            mod(c, EPOLLIN | EPOLLOUT);
          }
          unlink_c(c);
          return 0;
        }
        if (errno == EINTR) {
          continue;
        }
        return -1;
      }
      c->outoff += k;
      continue;
    }
    if (c->idx > c->n) {
      c->streaming = 0;
      running--;
      unlink_c(c);
      if (c->wantw) {
        c->wantw = 0;
        mod(c, EPOLLIN);
      }
      process(c);
      return 1;
    }
    if (c->idx < c->n && delay_ns && t < c->due) {
      link_c(c);
      return 0;
    }
    if (c->idx == c->n) {
      memcpy(c->out, tail, taillen);
      c->outlen = taillen;
    } else {
      char pl[512];
      uint64_t s = now();
      sprintf(pl,
              "data: "
              "{\"id\":\"chatcmpl-mock0000000000000001\",\"object\":\"chat.completion.chunk\",\"created\":1764560000,"
              "\"model\":\"mock-model\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"t=%019llu "
              "\"},\"logprobs\":null,\"finish_reason\":%s}]}\n\n",
              (unsigned long long)s, c->idx == c->n - 1 ? "\"stop\"" : "null");
      c->outlen = mk(c->out, pl);
      if (delay_ns) {
        c->due += delay_ns;
        if (c->due < t) {
          c->due = t;
        }
      }
    }
    c->outoff = 0;
    c->idx++;
  }
}
static void reply_json(conn *c, const char *ct, const char *body) {
  char h[8192];
  int n = sprintf(h, "HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n%s", ct,
                  strlen(body), body);
  sendall_small(c, h, n);
}
static void handle(conn *c) {
  char *b = c->b;
  size_t blen = c->need - c->head;
  char *body = b + c->head;
  if (!strncmp(b, "POST", 4)) {
    nreq++;
    char *s = memmem(body, blen, "\"stream\":true", 13);
    if (!s) {
      s = memmem(body, blen, "\"stream\": true", 14);
    }
    if (s) {
      c->streaming = 1;
      running++;
      c->idx = 0;
      c->n = nchunks;
      c->outoff = 0;
      c->outlen = 0;
      memcpy(c->out, SHEAD, sizeof SHEAD - 1);
      c->outlen = sizeof SHEAD - 1;
      uint64_t t = now();
      c->due = nextdue(t);
    } else {
      sendall_small(c, resp, resplen);
    }
    return;
  }
  char *sp = memchr(b, ' ', c->head);
  char *path = sp ? sp + 1 : (char *)"/";
  if (!strncmp(path, "/ctl", 4)) {
    char save = b[c->head - 1];
    b[c->head - 1] = 0;
    char *q;
    if ((q = strstr(path, "chunks="))) {
      nchunks = atoi(q + 7);
    }
    if ((q = strstr(path, "delay="))) {
      delay_ns = strtoull(q + 6, 0, 10) * 1000ull;
    }
    if ((q = strstr(path, "sync="))) {
      syncmode = atoi(q + 5);
    }
    b[c->head - 1] = save;
    char o[200];
    sprintf(o, "{\"reqs\":%llu,\"running\":%llu,\"chunks\":%d,\"delay_us\":%llu,\"sync\":%d}", (unsigned long long)nreq,
            (unsigned long long)running, nchunks, (unsigned long long)delay_ns / 1000, syncmode);
    reply_json(c, "application/json", o);
    return;
  }
  if (!strncmp(path, "/metrics", 8)) {
    char o[600];
    sprintf(o,
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"mock-model\"} %llu\n# TYPE "
            "vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"mock-model\"} 0\n# TYPE "
            "vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc{model_name=\"mock-model\"} 0.1\n",
            (unsigned long long)running);
    reply_json(c, "text/plain; version=0.0.4", o);
    return;
  }
  if (!strncmp(path, "/v1/models", 10)) {
    reply_json(c, "application/json",
               "{\"object\":\"list\",\"data\":[{\"id\":\"mock-model\",\"object\":\"model\",\"created\":1764560000,"
               "\"owned_by\":\"vllm\",\"root\":\"mock-model\",\"parent\":null,\"max_model_len\":131072}]}");
    return;
  }
  reply_json(c, "application/json",
             "{\"status\":\"ok\",\"model_path\":\"mock-model\",\"model_id\":\"mock-model\",\"served_model_name\":"
             "\"mock-model\",\"tokenizer_path\":\"mock-model\",\"is_generation\":true,\"model_type\":\"llama\",\"tp_"
             "size\":1,\"dp_size\":1,\"version\":\"0.5.0\"}");
}
static void process(conn *c) {
  while (!c->streaming) {
    if (!c->need) {
      if (c->len < 4) {
        return;
      }
      char *e = memmem(c->b, c->len, "\r\n\r\n", 4);
      if (!e) {
        return;
      }
      c->head = e + 4 - c->b;
      size_t cl = 0;
      c->chunked = 0;
      char *p = c->b;
      while (p < e) {
        char *nl = memmem(p, e + 2 - p, "\r\n", 2);
        if (!nl) {
          break;
        }
        if (!strncasecmp(p, "content-length:", 15)) {
          cl = strtoull(p + 15, 0, 10);
        } else if (!strncasecmp(p, "transfer-encoding:", 18)) {
          c->chunked = 1;
        }
        p = nl + 2;
      }
      c->need = c->head + cl;
      if (c->need + 1 > c->cap) {
        c->cap = c->need + 65536;
        c->b = realloc(c->b, c->cap);
      }
    }
    if (c->chunked) {
      if (c->len < c->head + 5 || memcmp(c->b + c->len - 5, "0\r\n\r\n", 5)) {
        return;
      }
      c->need = c->len;
    }
    if (c->len < c->need) {
      return;
    }
    handle(c);
    size_t rest = c->len - c->need;
    if (rest) {
      memmove(c->b, c->b + c->need, rest);
    }
    c->len = rest;
    c->need = 0;
    if (c->streaming) {
      if (pump(c, now()) < 0) {
        c->fd = c->fd;
      }
      return;
    }
  }
}
int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  init();
  active.nx = active.pv = &active;
  ep = epoll_create1(0);
  int o;
  while ((o = getopt(argc, argv, "p:n:d:y:")) != -1) {
    if (o == 'n') {
      nchunks = atoi(optarg);
    } else if (o == 'd') {
      delay_ns = strtoull(optarg, 0, 10) * 1000ull;
    } else if (o == 'y') {
      syncmode = atoi(optarg);
    } else if (o == 'p') {
      int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
      setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
      struct sockaddr_in a = {
          .sin_family = AF_INET, .sin_port = htons(atoi(optarg)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
      if (bind(s, (void *)&a, sizeof a) || listen(s, 1024)) {
        perror("bind");
        return 1;
      }
      conn *c = calloc(1, sizeof *c);
      c->fd = s;
      c->listener = 1;
      struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
      epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev);
    }
  }
  struct epoll_event evs[256];
  for (;;) {
    struct timespec ts, *tp = 0;
    uint64_t t = now();
    if (active.nx != &active) {
      uint64_t m = UINT64_MAX;
      for (conn *c = active.nx; c != &active; c = c->nx) {
        if (c->due < m) {
          m = c->due;
        }
      }
      uint64_t w = m > t ? m - t : 0;
      ts.tv_sec = w / 1000000000ull;
      ts.tv_nsec = w % 1000000000ull;
      tp = &ts;
    }
    int n = epoll_pwait2(ep, evs, 256, tp, 0);
    for (int i = 0; i < n; i++) {
      conn *c = evs[i].data.ptr;
      if (c->listener) {
        int fd;
        while ((fd = accept4(c->fd, 0, 0, SOCK_NONBLOCK)) >= 0) {
          int one = 1;
          setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          conn *k = calloc(1, sizeof *k);
          k->fd = fd;
          k->cap = 65536;
          k->b = malloc(k->cap);
          struct epoll_event ev = {.events = EPOLLIN, .data.ptr = k};
          epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
        }
        continue;
      }
      if (evs[i].events & EPOLLOUT) {
        if (c->streaming) {
          int r = pump(c, now());
          if (r < 0) {
            closec(c);
            continue;
          }
          if (c->streaming && c->wantw && c->outoff >= c->outlen) {
            c->wantw = 0;
            mod(c, EPOLLIN);
          }
        } else {
          c->wantw = 0;
          mod(c, EPOLLIN);
        }
      }
      if (evs[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        int dead = 0;
        for (;;) {
          if (c->cap - c->len < 32768) {
            c->cap *= 2;
            c->b = realloc(c->b, c->cap);
          }
          size_t room = c->cap - c->len;
          ssize_t k = recv(c->fd, c->b + c->len, room, 0);
          if (k > 0) {
            c->len += k;
            if ((size_t)k < room) {
              break;
            }
            continue;
          }
          if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
          }
          dead = 1;
          break;
        }
        if (dead) {
          closec(c);
          continue;
        }
        process(c);
      }
    }
    t = now();
    conn *c = active.nx;
    while (c != &active) {
      conn *nx = c->nx;
      if (c->due <= t) {
        if (pump(c, t) < 0) {
          closec(c);
        }
        if (nx->nx == 0 && nx != &active) {
          break;
        }
      }
      c = nx;
    }
  }
}
