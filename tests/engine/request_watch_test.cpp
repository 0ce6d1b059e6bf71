// SPDX-License-Identifier: Apache-2.0
// What a build with assertions says of a caller who misuses a request.
#include <doctest/doctest.h>

#include <cohort/engine/engine_core.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <support/complaint.hpp>

namespace cohort::engine::request_watch_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

struct silent {
  void launch(const deferred::batch& /*b*/) noexcept {}
  void ended(request& /*r*/, outcome /*how*/) noexcept {}
  void model_removed(model_id /*m*/) noexcept {}
};

/// One device, which a first request keeps busy for 5 ms.
struct server {
  engine_core core;
  silent sink;
  model_id model;
  std::unique_ptr<request> first = std::make_unique<request>();
  std::unique_ptr<request> waits = std::make_unique<request>();

  server() {
    core.add_device(t0);
    model = core.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{4ms, 1ms}, 4}, .slo = 20ms}});
    for (request* r : {first.get(), waits.get()}) {
      r->model = model;
      r->arrival = t0;
      r->deadline = t0 + 20ms;
      if (core.submit(*r, t0, sink)) std::abort();
      core.advance(t0, sink);
    }
  }
  void end_all() {
    for (int i = 0; i < 2; ++i) {
      core.on_complete(device_id{0}, false, t0 + 6ms, sink);
      core.advance(t0 + 6ms, sink);
    }
  }
};

/// What a process says that does this and ends by it; empty if it lives on.
template <class F>
std::string last_words(F misuse) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // Not doctest's.
    dup2(ends[1], STDERR_FILENO);
    misuse();
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char bytes[4096];
  for (ssize_t n; (n = read(ends[0], bytes, sizeof(bytes))) > 0;)
    said.append(bytes, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? said : "";
}
bool has(const std::string& said, const char* words) {
  CAPTURE(said);
  return test::gist{said}.has_line(words);
}

TEST_CASE("a caller who keeps to the rules is not stopped") {
  server s;
  s.end_all();
  CHECK(s.core.in_flight() == 0);
}
#ifndef NDEBUG
TEST_CASE("each misuse of a request ends the process with a sentence") {
  CHECK(has(last_words([] {
              server s;
              (void)s.core.submit(*s.waits, t0 + 1ms, s.sink);
            }),
            "... submit: ... submitted ... not ended"));
  CHECK(has(last_words([] {
              server s;  // Its memory is still there: else what is read is chance.
              s.waits->~request();
              s.end_all();
            }),
            "... request ... destroyed ... outcome"));
  CHECK(has(last_words([] {
              server s;
              s.first.reset();  // Of a batch at work.
            }),
            "... request ... destroyed ... outcome"));
  CHECK(has(last_words([] {
              server s;
              s.waits->deadline += 1ms;
              s.end_all();
            }),
            "... deadline ... size ... priority ... changed"));
  CHECK(has(last_words([] {
              server s;
              server other;
              other.core.cancel(*s.waits, t0 + 1ms, other.sink);
            }),
            "... cancel: another engine"));
}
#endif

}  // namespace
}  // namespace cohort::engine::request_watch_test
