// SPDX-License-Identifier: Apache-2.0
// Early exit with real data: your own model refines its answer stage by stage, and each request
// leaves its batch as soon as the answer is good enough.
#include <cohort/engine/engine.hpp>
#include <cohort/engine/executor_backend.hpp>
#include <cohort/engine/staged.hpp>
#include <cohort/runtime/host.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <latch>
#include <memory>

using namespace cohort;
using namespace std::chrono_literals;

/// Square roots by Newton's method, one step per stage. A row is {a, estimate, change}.
struct square_root {
  runtime::host_executor* executor;
  struct row {
    double a, x, change;
  };
  static std::string_view name() { return "square_root"; }
  static std::size_t stages() { return 12; }
  static std::size_t boundary_bytes(std::size_t) { return sizeof(row); }
  void enqueue(std::size_t, runtime::host_executor::stream& s, const runtime::slice& rows) {
    for_each(s, rows, [](row r) {
      const double next = 0.5 * (r.x + r.a / r.x);
      return row{r.a, next, std::abs(next - r.x)};
    });
  }
  // The data that a request takes with it when it leaves after a stage; here the row as it is.
  static bool has_exit(std::size_t) { return true; }
  void enqueue_exit(std::size_t, runtime::host_executor::stream& s, const runtime::slice& rows) {
    for_each(s, rows, [](row r) { return r; });
  }
  template <class F>
  void for_each(runtime::host_executor::stream& s, const runtime::slice& rows, F f) {
    executor->launch(s, [rows, f] {
      for (std::uint32_t i = rows.first; i < rows.first + rows.count; ++i) {
        row r;
        std::memcpy(&r, rows.input + i * rows.input_stride, sizeof(r));
        r = f(r);
        std::memcpy(rows.output + i * rows.output_stride, &r, sizeof(r));
      }
    });
  }
};

struct job : engine::tensor_request {
  square_root::row in, out;
};
struct answer {
  std::latch* left;
  void operator()(request&, outcome) const { left->count_down(); }
};

int main() {
  using backend_type =
      engine::executor_backend<runtime::host_executor, square_root, engine::staged<>>;
  constexpr std::uint32_t batch_max = 8;
  constexpr int count = 400;
  std::deque<job> jobs(count);
  std::latch left{count};
  int early = 0;

  runtime::host_executor executor;
  backend_type backend{executor};
  engine::basic_engine server{engine::engine_core{}, backend,
                              engine::inline_completion{answer{&left}}};
  backend.bind(server);
  server.add_device([&](device_id d) { backend.add_device(d); });
  const auto add = [&](model_id id) {
    backend_type::model_type m{
        .batch_max = batch_max,
        .policy = [](const batching::stage_profile& p) { return batching::diversity{p}; },
        .judge =
            [&](const engine::tensor_request&, std::uint32_t, std::span<const std::byte> result) {
              square_root::row r;
              std::memcpy(&r, result.data(), sizeof(r));
              if (r.change > 1e-12 * r.x) return batching::verdict::go_on;
              ++early;
              return batching::verdict::leave;
            }};
    for (std::size_t s = 0; s < square_root::stages(); ++s) {
      m.stages.push_back({{.batch = batch_max, .time = 10us}});
      m.instances.push_back(std::make_unique<square_root>(square_root{&executor}));
    }
    backend.add_model(id, device_id{0}, std::move(m));
  };
  const model_id model = server.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{100us, 1us}, batch_max}, .slo = 1s}},
      add);

  const steady_clock clock;
  for (int i = 0; i < count; ++i) {
    job& j = jobs[static_cast<std::size_t>(i)];
    j.in = {.a = 1.0 + i * i, .x = 1, .change = 0};
    j.model = model;
    j.arrival = clock.now();
    j.deadline = clock.now() + 10s;
    j.input = std::as_bytes(std::span{&j.in, 1});
    j.output = std::as_writable_bytes(std::span{&j.out, 1});
    if (server.submit(j)) return 1;
  }
  left.wait();
  int wrong = 0;
  for (const job& j : jobs) wrong += std::abs(j.out.x / std::sqrt(j.in.a) - 1) < 1e-3 ? 0 : 1;
  std::printf("%d of %d left before the last stage; %d wrong\n", early, count, wrong);
  return early > 0 && early < count && wrong == 0 ? 0 : 1;
}
