// HTTP/1.1 load generator: one thread, epoll, keep-alive. Output: one JSON line.
//   load -t 127.0.0.1:9000 -b body.json -c 32 -D 3 [-r rate] [-n maxreq] [-s 1 (SSE)] [-k expect_chunks] [-P path] [-H
//   "k: v"]
// closed loop unless -r; with -r an idle connection sends at the scheduled instant (else latency counts from the
// schedule). SSE: "t=<19 digits>" marks inside the decoded payload give the one-way delay mock->client of each chunk.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
typedef struct {
  float *v;
  size_t n, cap;
} vec;
static void push(vec *a, double x) {
  if (a->n == a->cap) {
    a->cap = a->cap ? a->cap * 2 : 4096;
    a->v = realloc(a->v, a->cap * sizeof(float));
  }
  a->v[a->n++] = x;
}
static int cmpf(const void *a, const void *b) {
  float x = *(float *)a, y = *(float *)b;
  return x < y ? -1 : x > y;
}
static double pct(vec *a, double p) {
  if (!a->n) {
    return 0;
  }
  size_t i = (size_t)ceil(p * a->n);
  if (i) {
    i--;
  }
  if (i >= a->n) {
    i = a->n - 1;
  }
  return a->v[i];
}
typedef struct {
  int fd, busy, hdr, chunked, status, close;
  size_t head, cl;
  char *b;
  size_t len, cap, pos;
  long crem;
  int cst; // raw + chunk decoder
  char *p;
  size_t pl, pcap, scan;
  size_t sent;
  uint64_t t0, tlast;
  int ttft, marks, done, wantw, connecting;
  size_t hi;
} conn;
static int ep;
static struct sockaddr_in addr;
static char *req, *nonce;
static size_t reqlen;
static uint64_t ncount;
static int sse, expectk;
static uint64_t late0;
static vec lat, ttft, oneway, gap;
static uint64_t ok, err, bad, bytes, chunks, reconn;
static char errs[400];
static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static void mod(conn *c, uint32_t e) {
  struct epoll_event ev = {.events = e, .data.ptr = c};
  epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &ev);
}
static void note(const char *s) {
  if (!errs[0]) {
    int j = 0;
    for (int i = 0; s[i] && j < 300; i++) {
      unsigned char ch = s[i];
      if (ch < 32 || ch == '"' || ch == '\\') {
        ch = ' ';
      }
      errs[j++] = ch;
    }
    errs[j] = 0;
  }
}
static int dial(conn *c) {
  if (c->fd >= 0) {
    close(c->fd);
  }
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  int one = 1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(c->fd, (void *)&addr, sizeof addr)) {
    perror("connect");
    return -1;
  }
  int fl = 1;
  (void)fl;
  extern int fcntl(int, int, ...);
  fcntl(c->fd, 4, 04000); // F_SETFL O_NONBLOCK
  struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev);
  c->len = 0;
  return 0;
}
static int flush(conn *c) {
  while (c->sent < reqlen) {
    ssize_t k = send(c->fd, req + c->sent, reqlen - c->sent, MSG_NOSIGNAL);
    if (k < 0) {
      if (errno == EAGAIN) {
        if (!c->wantw) {
          c->wantw = 1;
          mod(c, EPOLLIN | EPOLLOUT);
        }
        return 0;
      }
      return -1;
    }
    c->sent += k;
  }
  if (c->wantw) {
    c->wantw = 0;
    mod(c, EPOLLIN);
  }
  return 0;
}
static int start(conn *c, uint64_t t) {
  c->busy = 1;
  c->hdr = 0;
  c->status = 0;
  c->close = 0;
  c->chunked = 0;
  c->cl = 0;
  c->len = 0;
  c->pos = 0;
  c->cst = 0;
  c->crem = 0;
  c->pl = 0;
  c->scan = 0;
  c->sent = 0;
  c->t0 = t;
  c->tlast = 0;
  c->ttft = 0;
  c->marks = 0;
  c->done = 0;
  if (nonce) {
    uint64_t v = ++ncount;
    for (int i = 11; i >= 0; i--) {
      nonce[i] = '0' + v % 10;
      v /= 10;
    }
  }
  if (flush(c) < 0) {
    reconn++;
    if (dial(c) < 0) {
      return -1;
    }
    c->sent = 0;
    if (flush(c) < 0) {
      return -1;
    }
  }
  return 0;
}
static void scanp(conn *c, uint64_t t) { // marks
  for (;;) {
    char *q = memmem(c->p + c->scan, c->pl - c->scan, "t=", 2);
    if (!q || q + 21 > c->p + c->pl) {
      if (q) {
        c->scan = q - c->p;
      } else if (c->pl > 1) {
        c->scan = c->pl - 1;
      }
      return;
    }
    c->scan = q + 2 - c->p;
    if (q[2] != '0' || q[21 - 1] < '0' || q[21 - 1] > '9') {
      continue;
    }
    uint64_t v = 0;
    int good = 1;
    for (int i = 0; i < 19; i++) {
      char d = q[2 + i];
      if (d < '0' || d > '9') {
        good = 0;
        break;
      }
      v = v * 10 + d - '0';
    }
    if (!good) {
      continue;
    }
    c->scan = q + 21 - c->p;
    chunks++;
    c->marks++;
    push(&oneway, (double)(int64_t)(t - v) / 1000.0);
    if (!c->ttft) {
      c->ttft = 1;
      push(&ttft, (t - c->t0) / 1000.0);
    } else {
      push(&gap, (t - c->tlast) / 1000.0);
    }
    c->tlast = t;
  }
}
static void addp(conn *c, const char *s, size_t n) {
  if (c->pl + n + 1 > c->pcap) {
    c->pcap = (c->pl + n + 1) * 2 + 65536;
    c->p = realloc(c->p, c->pcap);
  }
  memcpy(c->p + c->pl, s, n);
  c->pl += n;
}
// returns 1 when the response is complete
static int parse(conn *c, uint64_t t) {
  if (!c->hdr) {
    char *e = memmem(c->b, c->len, "\r\n\r\n", 4);
    if (!e) {
      return 0;
    }
    c->hdr = 1;
    c->head = e + 4 - c->b;
    c->status = atoi(c->b + 9);
    c->cl = (size_t)-1;
    char *p = c->b;
    while (p < e) {
      char *nl = memmem(p, e + 2 - p, "\r\n", 2);
      if (!nl) {
        break;
      }
      if (!strncasecmp(p, "content-length:", 15)) {
        c->cl = strtoull(p + 15, 0, 10);
      } else if (!strncasecmp(p, "transfer-encoding:", 18)) {
        c->chunked = 1;
      } else if (!strncasecmp(p, "connection: close", 17)) {
        c->close = 1;
      }
      p = nl + 2;
    }
    c->pos = c->head;
    if (c->status == 100) {
      memmove(c->b, c->b + c->head, c->len - c->head);
      c->len -= c->head;
      c->hdr = 0;
      return parse(c, t);
    }
  }
  if (!c->chunked) {
    addp(c, c->b + c->pos, c->len - c->pos);
    c->pos = c->len;
    if (sse) {
      scanp(c, t);
    }
    return c->cl != (size_t)-1 && c->len >= c->head + c->cl;
  }
  while (c->pos < c->len) {
    if (c->cst == 0) {
      char *e = memmem(c->b + c->pos, c->len - c->pos, "\r\n", 2);
      if (!e) {
        break;
      }
      c->crem = strtol(c->b + c->pos, 0, 16);
      c->pos = e + 2 - c->b;
      c->cst = c->crem ? 1 : 3;
    } else if (c->cst == 1) {
      size_t k = c->len - c->pos;
      if (k > (size_t)c->crem) {
        k = c->crem;
      }
      addp(c, c->b + c->pos, k);
      c->pos += k;
      c->crem -= k;
      if (!c->crem) {
        c->cst = 2;
      }
    } else if (c->cst == 2) {
      if (c->len - c->pos < 2) {
        break;
      }
      c->pos += 2;
      c->cst = 0;
    } else {
      char *e = memmem(c->b + c->pos, c->len - c->pos, "\r\n", 2);
      if (!e) {
        break;
      }
      int empty = (e == c->b + c->pos);
      c->pos = e + 2 - c->b;
      if (empty) {
        if (sse) {
          scanp(c, t);
        }
        return 1;
      }
    }
  }
  if (sse) {
    scanp(c, t);
  }
  return 0;
}
static void finish(conn *c, uint64_t t) {
  c->busy = 0;
  bytes += c->len;
  if (c->status != 200) {
    err++;
    addp(c, "", 1);
    note(c->p ? c->p : "");
  } else if (sse ? (c->marks != expectk || !memmem(c->p, c->pl, "[DONE]", 6))
                 : (!memmem(c->p, c->pl, "byte for byte", 13))) {
    bad++;
    addp(c, "", 1);
    note(c->p);
  } else {
    ok++;
    push(&lat, (t - c->t0) / 1000.0);
  }
  if (c->close) {
    reconn++;
    dial(c);
  }
}
static void dist(const char *k, vec *a) {
  qsort(a->v, a->n, sizeof(float), cmpf);
  double s = 0;
  for (size_t i = 0; i < a->n; i++) {
    s += a->v[i];
  }
  printf(",\"%s\":{\"n\":%zu,\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f}", k, a->n,
         a->n ? s / a->n : 0, pct(a, .5), pct(a, .9), pct(a, .99), pct(a, 1));
}
int main(int argc, char **argv) {
  int o, nc = 1;
  double dur = 3, rate = 0, grace = 10, stag = 0;
  long maxreq = 0;
  char *tgt = "127.0.0.1:9000", *bf = 0, *path = "/v1/chat/completions";
  char hdrs[2048] = "";
  while ((o = getopt(argc, argv, "t:b:c:D:r:n:s:k:P:H:g:S:")) != -1) {
    switch (o) {
    case 't':
      tgt = optarg;
      break;
    case 'b':
      bf = optarg;
      break;
    case 'c':
      nc = atoi(optarg);
      break;
    case 'D':
      dur = atof(optarg);
      break;
    case 'r':
      rate = atof(optarg);
      break;
    case 'n':
      maxreq = atol(optarg);
      break;
    case 's':
      sse = atoi(optarg);
      break;
    case 'k':
      expectk = atoi(optarg);
      break;
    case 'P':
      path = optarg;
      break;
    case 'g':
      grace = atof(optarg);
      break;
    case 'S':
      stag = atof(optarg);
      break;
    case 'H':
      strcat(hdrs, optarg);
      strcat(hdrs, "\r\n");
      break;
    }
  }
  signal(SIGPIPE, SIG_IGN);
  char host[64];
  strncpy(host, tgt, 63);
  char *col = strchr(host, ':');
  *col = 0;
  addr.sin_family = AF_INET;
  addr.sin_port = htons(atoi(col + 1));
  inet_pton(AF_INET, host, &addr.sin_addr);
  if ((ntohl(addr.sin_addr.s_addr) >> 24) != 127) {
    fprintf(stderr, "loopback only\n");
    return 2;
  }
  FILE *f = fopen(bf, "rb");
  fseek(f, 0, SEEK_END);
  size_t bl = ftell(f);
  rewind(f);
  req = malloc(bl + 4096);
  int h = sprintf(req,
                  "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: */*\r\nUser-Agent: "
                  "load/1\r\nAuthorization: Bearer sk-1234\r\n%sContent-Length: %zu\r\n\r\n",
                  path, tgt, hdrs, bl);
  if (fread(req + h, 1, bl, f) != bl) {
    return 1;
  }
  reqlen = h + bl;
  nonce = memmem(req, reqlen, "NONCE000000000000", 17);
  if (nonce) {
    nonce += 5;
    ncount = (now() / 1000000) % 1000000000ull * 100;
  }
  ep = epoll_create1(0);
  conn *cs = calloc(nc, sizeof(conn));
  int *idle = malloc(sizeof(int) * nc), ni = 0;
  for (int i = 0; i < nc; i++) {
    cs[i].fd = -1;
    cs[i].cap = 65536;
    cs[i].b = malloc(65536);
    if (dial(&cs[i]) < 0) {
      return 1;
    }
  }
  uint64_t T0 = now(), end = T0 + (uint64_t)(dur * 1e9), stop = end + (uint64_t)(grace * 1e9),
           step = rate > 0 ? (uint64_t)(1e9 / rate) : 0, sched = T0;
  long issued = 0;
  int busy = 0;
  size_t backlog = 0;
  if (rate > 0 || stag > 0) {
    for (int i = nc - 1; i >= 0; i--) {
      idle[ni++] = i;
    }
  } else {
    for (int i = 0; i < nc; i++) {
      start(&cs[i], now());
      busy++;
      issued++;
    }
  }
  if (stag > 0) {
    step = (uint64_t)(stag * 1e3);
  }
  uint64_t tend = T0;
  struct epoll_event evs[512];
  int staged = 0;
  for (;;) {
    uint64_t t = now();
    if (rate > 0) {
      while (sched <= t && sched < end && (!maxreq || issued < maxreq)) {
        if (ni) {
          conn *c = &cs[idle[--ni]];
          uint64_t t1 = now();
          start(c, t1 - sched > 2000000 ? sched : t1);
          busy++;
        } else {
          backlog++;
          late0++;
        }
        issued++;
        sched += step;
      }
    }
    if (rate > 0) {
      while (backlog && ni) {
        conn *c = &cs[idle[--ni]];
        start(c, sched - backlog * step);
        busy++;
        backlog--;
      }
    }
    if (stag > 0) {
      while (staged < nc && T0 + staged * step <= t) {
        start(&cs[staged++], now());
        busy++;
        issued++;
      }
    }
    if ((t >= end || (maxreq && issued >= maxreq)) && !busy) {
      break;
    }
    if (t >= stop) {
      note("timeout");
      err += busy;
      break;
    }
    uint64_t w = 50000000;
    if (rate > 0 && sched < end) {
      uint64_t k = sched > t ? sched - t : 0;
      if (k < w) {
        w = k;
      }
    }
    if (stag > 0 && staged < nc) {
      uint64_t k = T0 + staged * step;
      k = k > t ? k - t : 0;
      if (k < w) {
        w = k;
      }
    }
    struct timespec ts = {w / 1000000000ull, w % 1000000000ull};
    int n = epoll_pwait2(ep, evs, 512, &ts, 0);
    for (int i = 0; i < n; i++) {
      conn *c = evs[i].data.ptr;
      if (evs[i].events & EPOLLOUT) {
        flush(c);
      }
      if (!(evs[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
        continue;
      }
      int eof = 0;
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
        eof = 1;
        break;
      }
      t = now();
      int done = 0;
      if (c->busy) {
        done = parse(c, t);
        if (!done && eof) {
          if (c->hdr && !c->chunked && c->cl == (size_t)-1) {
            done = 1;
            c->close = 1;
          } else {
            err++;
            note("eof mid-response");
            c->busy = 0;
            busy--;
            dial(c);
            if (rate > 0) {
              idle[ni++] = c - cs;
            } else if (t < end && (!maxreq || issued < maxreq)) {
              start(c, now());
              busy++;
              issued++;
            }
            continue;
          }
        }
      } else if (eof) {
        reconn++;
        dial(c);
        continue;
      }
      if (done) {
        finish(c, t);
        tend = t;
        busy--;
        if (rate > 0) {
          idle[ni++] = c - cs;
        } else if (t < end && (!maxreq || issued < maxreq)) {
          start(c, now());
          busy++;
          issued++;
        }
      }
    }
  }
  struct rusage ru;
  getrusage(RUSAGE_SELF, &ru);
  double cpu = ru.ru_utime.tv_sec + ru.ru_utime.tv_usec / 1e6 + ru.ru_stime.tv_sec + ru.ru_stime.tv_usec / 1e6;
  double el = (tend - T0) / 1e9;
  if (el <= 0) {
    el = 1e-9;
  }
  printf("{\"ok\":%llu,\"err\":%llu,\"bad\":%llu,\"secs\":%.4f,\"rps\":%.1f,\"chunks\":%llu,\"bytes\":%llu,\"reconn\":%"
         "llu,\"late\":%llu,\"load_cpu_s\":%.4f,\"note\":\"%s\"",
         (unsigned long long)ok, (unsigned long long)err, (unsigned long long)bad, el, ok / el,
         (unsigned long long)chunks, (unsigned long long)bytes, (unsigned long long)reconn, (unsigned long long)late0,
         cpu, errs);
  dist("lat_us", &lat);
  if (sse) {
    dist("ttft_us", &ttft);
    dist("oneway_us", &oneway);
    dist("gap_us", &gap);
  }
  printf("}\n");
  return 0;
}
