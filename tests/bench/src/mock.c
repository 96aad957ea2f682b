// A mock engine that costs next to nothing: one thread, epoll, HTTP/1.1 keep-alive, loopback only.
//   mock -p PORT [-p PORT ...]
// POST (any path)  JSON of ~600 bytes or, when the body has "stream":true, SSE: N chunks of ~220 bytes whose content is
//                  "t=<CLOCK_MONOTONIC in ns, 19 digits> ", a usage chunk, [DONE].
// GET /ctl?chunks=64&delay=20000&sync=0   shape of streams: delay in us between chunks; sync: all emit on one tick.
// GET anything     health, models, metrics and server info, as far as routers ask for them.
#define _GNU_SOURCE
#include "common.h"

#define MODEL "mock-model"
#define CHUNK "{\"id\":\"chatcmpl-mock0000000000000001\",\"object\":\"chat.completion.chunk\",\"created\":1764560000,\"model\":\"" MODEL "\",\"choices\":["
#define STREAM_HEAD \
  "HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: text/event-stream; charset=utf-8\r\n" \
  "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"

typedef struct conn {
  int fd, listening, want_write;
  buffer in;
  http_head head;
  int streaming, sent_chunks, chunks; // chunks + 1 is the tail: usage and [DONE]
  uint64_t due;
  char out[1024];
  int out_len, out_sent;
  struct conn *next, *prev; // in the ring of streams that wait for their time
} conn;

static const char ANSWER[] =
    "{\"id\":\"chatcmpl-mock0000000000000001\",\"object\":\"chat.completion\",\"created\":1764560000,"
    "\"model\":\"" MODEL "\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"The quick brown "
    "fox jumps over the lazy dog while the gateway measures how long it takes to carry this answer from a backend to a "
    "client, byte for byte, with no change at all, so that the cost of the hop is plain to see and nothing else is in "
    "the way.\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":256,"
    "\"completion_tokens\":52,\"total_tokens\":308},\"system_fingerprint\":\"fp_mock\"}";
static const char MODELS[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"" MODEL "\",\"object\":\"model\",\"created\":1764560000,"
    "\"owned_by\":\"vllm\",\"root\":\"" MODEL "\",\"parent\":null,\"max_model_len\":4194304}]}";
static const char INFO[] =
    "{\"status\":\"ok\",\"model_path\":\"" MODEL "\",\"model_id\":\"" MODEL "\",\"served_model_name\":\"" MODEL "\","
    "\"tokenizer_path\":\"" MODEL "\",\"is_generation\":true,\"model_type\":\"llama\",\"tp_size\":1,\"dp_size\":1,"
    "\"version\":\"0.5.0\"}";

static int epoll;
static int chunks_per_stream = 64, in_step;
static uint64_t delay_ns, running, requests;
static conn waiting; // head of the ring
static char answer[2048], tail[1024];
static int answer_len, tail_len;

static int chunked(char *out, const char *payload) {
  return sprintf(out, "%zx\r\n%s\r\n", strlen(payload), payload);
}

static int plain(char *out, const char *type, const char *body) {
  return sprintf(out, "HTTP/1.1 200 OK\r\nserver: mock\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n%s", type,
                 strlen(body), body);
}

static void leave_ring(conn *c) {
  if (!c->next) return;
  c->prev->next = c->next;
  c->next->prev = c->prev;
  c->next = c->prev = NULL;
}

static void join_ring(conn *c) {
  if (c->next) return;
  c->next = &waiting;
  c->prev = waiting.prev;
  waiting.prev->next = c;
  waiting.prev = c;
}

static void drop(conn *c) {
  running -= c->streaming;
  leave_ring(c);
  close(c->fd);
  free(c->in.data);
  free(c);
}

static void set_want_write(conn *c, int want) {
  if (c->want_write == want) return;
  c->want_write = want;
  watch(epoll, EPOLL_CTL_MOD, c->fd, c, want ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void send_small(conn *c, const char *bytes, int count) { // fits the socket buffer
  while (count > 0) {
    ssize_t sent = send(c->fd, bytes, count, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EINTR) return;
      usleep(100);
      continue;
    }
    bytes += sent;
    count -= sent;
  }
}

static void next_chunk(conn *c, uint64_t t) {
  if (c->sent_chunks == c->chunks) {
    memcpy(c->out, tail, tail_len);
    c->out_len = tail_len;
  } else {
    char payload[512];
    const char *finish = c->sent_chunks == c->chunks - 1 ? "\"stop\"" : "null";
    sprintf(payload,
            "data: " CHUNK "{\"index\":0,\"delta\":{\"content\":\"t=%019llu \"},\"logprobs\":null,"
            "\"finish_reason\":%s}]}\n\n",
            (unsigned long long)now_ns(), finish);
    c->out_len = chunked(c->out, payload);
    c->due = c->due + delay_ns < t ? t : c->due + delay_ns;
  }
  c->out_sent = 0;
  c->sent_chunks++;
}

// Sends what is due. Returns -1 when the connection is broken.
static int pump(conn *c, uint64_t t) {
  for (;;) {
    while (c->out_sent < c->out_len) {
      ssize_t sent = send(c->fd, c->out + c->out_sent, c->out_len - c->out_sent, MSG_NOSIGNAL);
      if (sent >= 0) {
        c->out_sent += sent;
      } else if (errno == EAGAIN) {
        set_want_write(c, 1);
        leave_ring(c);
        return 0;
      } else if (errno != EINTR) {
        return -1;
      }
    }
    if (c->sent_chunks > c->chunks) {
      c->streaming = 0;
      running--;
      leave_ring(c);
      set_want_write(c, 0);
      return 0;
    }
    if (c->sent_chunks < c->chunks && delay_ns && t < c->due) {
      join_ring(c);
      return 0;
    }
    next_chunk(c, t);
  }
}

static int start_stream(conn *c) {
  uint64_t t = now_ns();
  c->streaming = 1;
  running++;
  c->chunks = chunks_per_stream;
  c->sent_chunks = c->out_sent = 0;
  c->out_len = sizeof STREAM_HEAD - 1;
  memcpy(c->out, STREAM_HEAD, c->out_len);
  c->due = delay_ns && in_step ? (t / delay_ns + 1) * delay_ns : t + delay_ns;
  return pump(c, t);
}

static void control(const char *query) {
  const char *found;
  if ((found = strstr(query, "chunks="))) chunks_per_stream = atoi(found + 7);
  if ((found = strstr(query, "delay="))) delay_ns = strtoull(found + 6, NULL, 10) * NS_PER_US;
  if ((found = strstr(query, "sync="))) in_step = atoi(found + 5);
}

static void get(conn *c, char *path) {
  char body[1024], out[2048];
  const char *type = "application/json", *answer_body = body;
  if (!strncmp(path, "/ctl", 4)) {
    control(path);
    sprintf(body, "{\"reqs\":%llu,\"running\":%llu}", (unsigned long long)requests, (unsigned long long)running);
  } else if (!strncmp(path, "/metrics", 8)) {
    type = "text/plain; version=0.0.4";
    sprintf(body,
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"" MODEL "\"} %llu\n"
            "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"" MODEL "\"} 0\n"
            "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"" MODEL "\"} 0.1\n",
            (unsigned long long)running);
  } else {
    answer_body = strncmp(path, "/v1/models", 10) ? INFO : MODELS;
  }
  send_small(c, out, plain(out, type, answer_body));
}

// Answers one complete request. Returns -1 when the connection is broken.
static int handle(conn *c, size_t body_len) {
  char *body = c->in.data + c->head.length;
  if (!strncmp(c->in.data, "POST", 4)) {
    requests++;
    if (memmem(body, body_len, "\"stream\":true", 13) || memmem(body, body_len, "\"stream\": true", 14)) {
      return start_stream(c);
    }
    send_small(c, answer, answer_len);
    return 0;
  }
  char *line_end = memmem(c->in.data, c->head.length, "\r\n", 2);
  char *space = memchr(c->in.data, ' ', line_end - c->in.data);
  *line_end = 0;
  get(c, space ? space + 1 : line_end);
  return 0;
}

// Handles the complete requests in the buffer, up to a stream. Returns -1 when the connection is broken.
static int process(conn *c) {
  while (!c->streaming) {
    if (!c->head.length) c->head = parse_head(c->in.data, c->in.len);
    if (!c->head.length) return 0;
    size_t need = c->head.length + c->head.content_length;
    if (c->head.chunked) { // nobody sends a second request before the answer: the buffer ends with the body
      if (c->in.len < c->head.length + 5 || memcmp(c->in.data + c->in.len - 5, "0\r\n\r\n", 5)) return 0;
      need = c->in.len;
    }
    if (c->in.len < need) {
      buffer_room(&c->in, need - c->in.len);
      return 0;
    }
    int broken = handle(c, need - c->head.length);
    c->in.len -= need;
    memmove(c->in.data, c->in.data + need, c->in.len);
    c->head.length = 0;
    if (broken) return -1;
  }
  return 0;
}

static int listen_on(int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
  struct sockaddr_in address = loopback(port);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd, (void *)&address, sizeof address) || listen(fd, 1024)) {
    perror("bind");
    return -1;
  }
  conn *c = calloc(1, sizeof *c);
  c->fd = fd;
  c->listening = 1;
  watch(epoll, EPOLL_CTL_ADD, fd, c, EPOLLIN);
  return 0;
}

static void accept_all(conn *listener) {
  for (int fd; (fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
    conn *c = calloc(1, sizeof *c);
    no_delay(fd);
    c->fd = fd;
    watch(epoll, EPOLL_CTL_ADD, fd, c, EPOLLIN);
  }
}

static void on_event(conn *c, uint32_t events) {
  if (c->listening) {
    accept_all(c);
    return;
  }
  int broken = 0;
  if (events & EPOLLOUT) {
    set_want_write(c, 0);
    broken = c->streaming && pump(c, now_ns()) < 0;
  }
  if (!broken && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) broken = buffer_recv(&c->in, c->fd);
  if (broken || process(c) < 0) drop(c);
}

static void emit_due(uint64_t t) {
  for (conn *c = waiting.next, *next; c != &waiting; c = next) {
    next = c->next;
    if (c->due <= t && (pump(c, t) < 0 || process(c) < 0)) drop(c);
  }
}

static int wait_for_events(struct epoll_event *events, int count) {
  uint64_t t = now_ns(), earliest = UINT64_MAX;
  for (conn *c = waiting.next; c != &waiting; c = c->next) earliest = c->due < earliest ? c->due : earliest;
  if (earliest == UINT64_MAX) return epoll_pwait2(epoll, events, count, NULL, NULL);
  uint64_t left = earliest > t ? earliest - t : 0;
  struct timespec timeout = {left / NS_PER_S, left % NS_PER_S};
  return epoll_pwait2(epoll, events, count, &timeout, NULL);
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  waiting.next = waiting.prev = &waiting;
  epoll = epoll_create1(0);
  answer_len = plain(answer, "application/json", ANSWER);
  tail_len = chunked(tail, "data: " CHUNK "],\"usage\":{\"prompt_tokens\":256,\"completion_tokens\":64,"
                           "\"total_tokens\":320}}\n\n");
  tail_len += chunked(tail + tail_len, "data: [DONE]\n\n");
  tail_len += sprintf(tail + tail_len, "0\r\n\r\n");
  for (int option; (option = getopt(argc, argv, "p:")) != -1;) {
    if (option != 'p' || listen_on(atoi(optarg))) return 1;
  }
  struct epoll_event events[256];
  for (;;) {
    int count = wait_for_events(events, 256);
    for (int i = 0; i < count; i++) on_event(events[i].data.ptr, events[i].events);
    emit_due(now_ns());
  }
}
