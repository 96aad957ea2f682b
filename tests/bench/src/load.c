// HTTP/1.1 load generator: one thread, epoll, keep-alive, loopback only. Prints one line of JSON.
//   load -t 127.0.0.1:PORT -b BODY_FILE -c CONNECTIONS -D SECONDS [-r RATE] [-s 1 -k CHUNKS] [-S STAGGER_US] [-H "k: v"]
// Closed loop, or with -r an open one: a request goes out at its time, and when no connection was free then, its latency
// counts from that time. -s 1 reads SSE: the mock's "t=<19 digits>" in a chunk gives that chunk's one-way delay.
// Every answer is checked: status 200 and the mock's text, or CHUNKS marks and [DONE].
#define _GNU_SOURCE
#include "common.h"
#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>

#define KEY "sk-1234"
#define NONCE "NONCE000000000000" // its digits are counted up, so that no two bodies are equal
#define NONCE_DIGITS 12
#define MARK_DIGITS 19
#define GRACE_S 10.0    // for what is in flight at the end
#define LATE_NS 2000000 // a request sent later than this after its time counts from its time
#define MAX_WAIT_NS 50000000

typedef struct {
  float *values;
  size_t count, cap;
} series;

typedef enum { SIZE_LINE, DATA, DATA_END, TRAILER } chunk_state;

typedef struct {
  int fd, busy, want_write;
  size_t sent;
  buffer in;      // the answer as it came
  size_t parsed;  // of it
  buffer payload; // the answer's body without chunk framing
  size_t scanned; // of it, for marks
  http_head head;
  int status;
  chunk_state state;
  size_t chunk_left;
  uint64_t begun, last_mark;
  int marks;
} conn;

static int epoll, sse, expected_marks;
static struct sockaddr_in target;
static char *request, *nonce;
static size_t request_len;
static uint64_t nonce_count;
static series latency, first_mark, one_way, gap;
static uint64_t good, failed, wrong, marks, late;
static char first_trouble[300];

// The schedule: when requests start and which connections are free to take them.
static conn *conns, **idle;
static int conn_count, idle_count, busy, staged;
static uint64_t begin, end, interval, stagger, next_due, backlog;

static void record(series *s, double value) {
  if (s->count == s->cap) {
    s->cap = s->cap ? s->cap * 2 : 4096;
    s->values = realloc(s->values, s->cap * sizeof *s->values);
  }
  s->values[s->count++] = value;
}

static void note(const char *text, size_t len) {
  if (first_trouble[0]) return;
  for (size_t i = 0; i < len && i < sizeof first_trouble - 1; i++) {
    unsigned char c = text[i];
    first_trouble[i] = c < 32 || c > 126 || c == '"' || c == '\\' ? ' ' : c;
  }
}

static void dial(conn *c) {
  if (c->fd >= 0) close(c->fd);
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  no_delay(c->fd);
  if (connect(c->fd, (void *)&target, sizeof target)) {
    perror("connect");
    exit(1);
  }
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  c->want_write = 0;
  watch(epoll, EPOLL_CTL_ADD, c->fd, c, EPOLLIN);
}

// Returns -1 when the connection is broken.
static int send_rest(conn *c) {
  while (c->sent < request_len) {
    ssize_t sent = send(c->fd, request + c->sent, request_len - c->sent, MSG_NOSIGNAL);
    if (sent >= 0) {
      c->sent += sent;
      continue;
    }
    if (errno != EAGAIN) return -1;
    break;
  }
  int want = c->sent < request_len;
  if (want != c->want_write) {
    c->want_write = want;
    watch(epoll, EPOLL_CTL_MOD, c->fd, c, want ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
  return 0;
}

static void start(conn *c, uint64_t counted_from) {
  c->busy = 1;
  busy++;
  c->in.len = c->parsed = c->payload.len = c->scanned = c->sent = 0;
  c->head.length = 0;
  c->state = SIZE_LINE;
  c->marks = 0;
  c->begun = counted_from;
  if (nonce) {
    uint64_t value = ++nonce_count;
    for (int i = NONCE_DIGITS - 1; i >= 0; i--, value /= 10) nonce[i] = '0' + value % 10;
  }
  if (send_rest(c) < 0) { // the gateway closed an idle connection: that is its right
    dial(c);
    c->sent = 0;
    send_rest(c);
  }
}

// After an answer: on with the next request, or wait for its time.
static void next(conn *c, uint64_t t) {
  c->busy = 0;
  busy--;
  if (interval) {
    idle[idle_count++] = c;
  } else if (t < end) {
    start(c, now_ns());
  }
}

static void scan_marks(conn *c, uint64_t t) {
  for (;;) {
    char *at = memmem(c->payload.data + c->scanned, c->payload.len - c->scanned, "t=", 2);
    char *stop = c->payload.data + c->payload.len;
    if (!at || at + 2 + MARK_DIGITS > stop) {
      c->scanned = at ? (size_t)(at - c->payload.data) : c->payload.len - (c->payload.len > 0);
      return;
    }
    char digits[MARK_DIGITS + 1] = "", *rest;
    memcpy(digits, at + 2, MARK_DIGITS);
    c->scanned = at + 2 - c->payload.data;
    uint64_t sent = strtoull(digits, &rest, 10);
    if (rest != digits + MARK_DIGITS) continue;
    c->scanned += MARK_DIGITS;
    record(&one_way, (double)(int64_t)(t - sent) / NS_PER_US);
    if (c->marks++) {
      record(&gap, (double)(t - c->last_mark) / NS_PER_US);
    } else {
      record(&first_mark, (double)(t - c->begun) / NS_PER_US);
    }
    c->last_mark = t;
    marks++;
  }
}

// Takes chunk framing off. Returns 1 at the end of the body.
static int unchunk(conn *c) {
  while (c->parsed < c->in.len) {
    char *at = c->in.data + c->parsed;
    size_t left = c->in.len - c->parsed;
    if (c->state == DATA) {
      size_t take = left < c->chunk_left ? left : c->chunk_left;
      buffer_add(&c->payload, at, take);
      c->parsed += take;
      c->chunk_left -= take;
      if (!c->chunk_left) c->state = DATA_END;
      continue;
    }
    char *line_end = memmem(at, left, "\r\n", 2);
    if (!line_end) return 0;
    c->parsed += line_end + 2 - at;
    if (c->state == SIZE_LINE) {
      c->chunk_left = strtoul(at, NULL, 16);
      c->state = c->chunk_left ? DATA : TRAILER;
    } else if (c->state == DATA_END) {
      c->state = SIZE_LINE;
    } else if (line_end == at) {
      return 1;
    }
  }
  return 0;
}

// Returns 1 when the answer is complete.
static int parse(conn *c, uint64_t t) {
  if (!c->head.length) {
    c->head = parse_head(c->in.data, c->in.len);
    if (!c->head.length) return 0;
    c->status = atoi(c->in.data + strlen("HTTP/1.1 "));
    if (c->status == 100) { // an interim answer: the real one follows
      c->in.len -= c->head.length;
      memmove(c->in.data, c->in.data + c->head.length, c->in.len);
      c->head.length = 0;
      return parse(c, t);
    }
    c->parsed = c->head.length;
  }
  int complete;
  if (c->head.chunked) {
    complete = unchunk(c);
  } else {
    buffer_add(&c->payload, c->in.data + c->parsed, c->in.len - c->parsed);
    c->parsed = c->in.len;
    complete = c->head.has_length && c->payload.len >= c->head.content_length;
  }
  if (sse) scan_marks(c, t);
  return complete;
}

static void judge(conn *c, uint64_t t) {
  const char *proof = sse ? "[DONE]" : "byte for byte";
  if (c->status != 200) {
    failed++;
    note(c->payload.data, c->payload.len);
  } else if ((sse && c->marks != expected_marks) || !memmem(c->payload.data, c->payload.len, proof, strlen(proof))) {
    wrong++;
    note(c->payload.data, c->payload.len);
  } else {
    good++;
    record(&latency, (double)(t - c->begun) / NS_PER_US);
  }
}

// Returns the time of the last complete answer, 0 when there was none.
static uint64_t on_event(conn *c, uint32_t events) {
  if (events & EPOLLOUT) send_rest(c);
  if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return 0;
  int closed = buffer_recv(&c->in, c->fd);
  uint64_t t = now_ns();
  if (!c->busy) {
    if (closed) dial(c);
    return 0;
  }
  int until_close = closed && c->head.length && !c->head.chunked && !c->head.has_length;
  if (parse(c, t) || until_close) {
    judge(c, t);
    if (c->head.close || closed) dial(c);
    next(c, t);
    return t;
  }
  if (closed) {
    failed++;
    note("closed within an answer", 23);
    dial(c);
    next(c, t);
  }
  return 0;
}

static void start_due(uint64_t t) {
  for (; interval && next_due <= t && next_due < end; next_due += interval) {
    if (idle_count) {
      uint64_t sent = now_ns();
      start(idle[--idle_count], sent - next_due > LATE_NS ? next_due : sent);
    } else {
      backlog++;
      late++;
    }
  }
  for (; backlog && idle_count; backlog--) start(idle[--idle_count], next_due - backlog * interval);
  for (; stagger && staged < conn_count && begin + staged * stagger <= t; staged++) start(&conns[staged], now_ns());
}

static int wait_for_events(uint64_t t, struct epoll_event *events, int count) {
  uint64_t wait = MAX_WAIT_NS, due = UINT64_MAX;
  if (interval && next_due < end) due = next_due;
  if (stagger && staged < conn_count) due = begin + staged * stagger;
  if (due != UINT64_MAX && (due <= t || due - t < wait)) wait = due > t ? due - t : 0;
  struct timespec timeout = {wait / NS_PER_S, wait % NS_PER_S};
  return epoll_pwait2(epoll, events, count, &timeout, NULL);
}

// Returns when the last answer was complete.
static uint64_t run(void) {
  struct epoll_event events[512];
  uint64_t last = begin;
  for (;;) {
    uint64_t t = now_ns();
    start_due(t);
    if (t >= end && !busy) return last;
    if (t >= end + (uint64_t)(GRACE_S * NS_PER_S)) {
      failed += busy;
      note("no answer in time", 17);
      return last;
    }
    int count = wait_for_events(t, events, 512);
    for (int i = 0; i < count; i++) {
      uint64_t done = on_event(events[i].data.ptr, events[i].events);
      if (done) last = done;
    }
  }
}

static int ascending(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}

static double percentile(const series *s, double share) {
  return s->count ? s->values[(size_t)fmax(0, ceil(share * s->count) - 1)] : 0;
}

static void print_series(const char *name, series *s) {
  double sum = 0;
  qsort(s->values, s->count, sizeof *s->values, ascending);
  for (size_t i = 0; i < s->count; i++) sum += s->values[i];
  printf(",\"%s\":{\"n\":%zu,\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f}", name, s->count,
         s->count ? sum / s->count : 0, percentile(s, .5), percentile(s, .9), percentile(s, .99), percentile(s, 1));
}

static void print_report(double seconds) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  printf("{\"ok\":%llu,\"err\":%llu,\"bad\":%llu,\"rps\":%.1f,\"chunks\":%llu,\"late\":%llu,\"load_cpu_s\":%.4f,"
         "\"note\":\"%s\"",
         (unsigned long long)good, (unsigned long long)failed, (unsigned long long)wrong, good / fmax(seconds, 1e-9),
         (unsigned long long)marks, (unsigned long long)late, cpu, first_trouble);
  print_series("lat_us", &latency);
  if (sse) {
    print_series("ttft_us", &first_mark);
    print_series("oneway_us", &one_way);
    print_series("gap_us", &gap);
  }
  printf("}\n");
}

static int read_request(const char *body_file, const char *headers) {
  FILE *file = fopen(body_file, "rb");
  if (!file) return -1;
  fseek(file, 0, SEEK_END);
  size_t body_len = ftell(file);
  rewind(file);
  request = malloc(body_len + 4096);
  int head_len = sprintf(request,
                         "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                         "Accept: */*\r\nUser-Agent: load/1\r\nAuthorization: Bearer " KEY "\r\n%s"
                         "Content-Length: %zu\r\n\r\n",
                         ntohs(target.sin_port), headers, body_len);
  request_len = head_len + body_len;
  size_t got = fread(request + head_len, 1, body_len, file);
  fclose(file);
  nonce = memmem(request, request_len, NONCE, strlen(NONCE));
  if (nonce) {
    nonce += strlen(NONCE) - NONCE_DIGITS;
    nonce_count = now_ns() / 1000000 % 1000000000 * 100; // another run begins elsewhere
  }
  return got == body_len ? 0 : -1;
}

int main(int argc, char **argv) {
  const char *address = "127.0.0.1:9000", *body_file = "";
  char headers[2048] = "";
  double seconds = 3, rate = 0, stagger_us = 0;
  conn_count = 1;
  for (int option; (option = getopt(argc, argv, "t:b:c:D:r:s:k:S:H:")) != -1;) {
    if (option == 't') address = optarg;
    if (option == 'b') body_file = optarg;
    if (option == 'c') conn_count = atoi(optarg);
    if (option == 'D') seconds = atof(optarg);
    if (option == 'r') rate = atof(optarg);
    if (option == 's') sse = atoi(optarg);
    if (option == 'k') expected_marks = atoi(optarg);
    if (option == 'S') stagger_us = atof(optarg);
    if (option == 'H') snprintf(headers + strlen(headers), sizeof headers - strlen(headers), "%s\r\n", optarg);
    if (option == '?') return 64;
  }
  if (strncmp(address, "127.0.0.1:", 10)) {
    fprintf(stderr, "loopback only: -t 127.0.0.1:PORT\n");
    return 64;
  }
  signal(SIGPIPE, SIG_IGN);
  target = loopback(atoi(address + 10));
  epoll = epoll_create1(0);
  if (read_request(body_file, headers)) {
    perror(body_file);
    return 1;
  }
  conns = calloc(conn_count, sizeof *conns);
  idle = calloc(conn_count, sizeof *idle);
  for (int i = 0; i < conn_count; i++) {
    conns[i].fd = -1;
    dial(&conns[i]);
  }
  begin = next_due = now_ns();
  end = begin + (uint64_t)(seconds * NS_PER_S);
  interval = rate > 0 ? (uint64_t)(NS_PER_S / rate) : 0;
  stagger = (uint64_t)(stagger_us * NS_PER_US);
  for (int i = conn_count - 1; i >= 0; i--) {
    if (interval) idle[idle_count++] = &conns[i];
    if (!interval && !stagger) start(&conns[i], now_ns());
  }
  print_report((run() - begin) / 1e9);
  return 0;
}
