// SPDX-License-Identifier: Apache-2.0
// Question: how much processor time does a server take for an inference, beyond GET /v2/health/live
// and beyond computing? The inference server's own parts (HTTP, protocol, engine with the policy
// adaptive, host executor) over a model of lenet's interface that computes nothing, loaded by a
// process of its own over a number of connections, each of which waits for its answer. In turns:
// live, binary, JSON; told are the medians of the turns. Then: how long do live and binary requests
// wait, at the 99th percentile, alone and beside two connections that post 16 MiB?
// Usage: serve.request_cost [CONNECTIONS [SECONDS [TURNS]]]; 32 1 9 by default. Exit status 1 if
// binary takes more than 8 us beyond live, or the 99th percentile is more than three times the one
// alone, but not in runs of less than a second.
#include <cohort/core/clock.hpp>
#include <cohort/deferred/twin/tuned_scheduler.hpp>
#include <cohort/engine/engine.hpp>
#include <cohort/engine/executor_backend.hpp>
#include <cohort/engine/trial_thread.hpp>
#include <cohort/runtime/host.hpp>
#include <cohort/serve/http.hpp>
#include <cohort/serve/metrics.hpp>

#include <fmt/format.h>
#include <inference/infer_app.hpp>
#include <inference/model_service.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {
using namespace cohort;
using namespace std::chrono_literals;

constexpr std::size_t pixels = 784;
constexpr double most_us = 8;
constexpr double most_times = 3;
constexpr std::int64_t numbers = (1 << 22) - 64;  // Of a long body, which has 16 MiB.
const serve::model_meta lenet{.name = "lenet",
                              .platform = "none",
                              .inputs = {{"image", runtime::data_type::f32, {28, 28, 1}}},
                              .outputs = {{"logits", runtime::data_type::f32, {10}}},
                              .slo = 1s};
const serve::model_meta large{.name = "large",
                              .platform = "none",
                              .inputs = {{"x", runtime::data_type::f32, {numbers}}},
                              .outputs = {{"y", runtime::data_type::f32, {10}}},
                              .slo = 10s};

struct nothing {
  runtime::host_executor* on;
  std::size_t input;  // Bytes of a row.
  [[nodiscard]] std::string_view name() const { return "nothing"; }
  [[nodiscard]] std::size_t stages() const { return 1; }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t i) const {
    return i == 0 ? input : 10 * sizeof(float);
  }
  void enqueue(std::size_t, runtime::host_executor::stream& s, const runtime::slice& x) {
    on->launch(s, [x] { std::memset(x.output, 0, x.count * x.output_stride); });
  }
};

struct deliver {
  inference::outcome_listener* listener;
  void operator()(request& r, outcome how) const {
    listener->ended(static_cast<engine::tensor_request&>(r), how);
  }
};

/// What `inference_server --executor host --devices 1` has, but for the model.
class service final : public inference::model_service {
 public:
  explicit service(inference::outcome_listener& listener, serve::metrics& counters)
      : engine_{core_type{scheduler_type{{}}, duration{0}, {{}, &counters}}, backend_,
                engine::inline_completion{deliver{&listener}}} {
    backend_.bind(engine_);
    device_id device;
    engine_.add_device([&](device_id d) {
      counters.add_device(d);
      backend_.add_device(d);
      device = d;
    });
    for (const serve::model_meta& meta : {lenet, large}) {
      const std::uint32_t most = meta.name == lenet.name ? 16 : 2;
      const std::size_t bytes = runtime::row_layout{meta.inputs, 1}.bytes();
      const model_id m = engine_.add_model(
          {.scheduling = {.latency = latency_curve{linear_latency{50us, 1us}, most},
                          .slo = meta.slo}},
          [&](model_id id) {
            counters.add_model(id, meta.name);
            backend_.add_model(
                id, device,
                {.batch_max = most, .instance = std::make_unique<nothing>(&executor_, bytes)});
          });
      models_.push_back({.id = m, .meta = meta});
    }
  }
  [[nodiscard]] const std::vector<inference::served_model>& models() const noexcept override {
    return models_;
  }
  [[nodiscard]] const std::string& description() const noexcept override { return none_; }
  [[nodiscard]] const std::string& notes() const noexcept override { return none_; }
  [[nodiscard]] std::optional<refusal> submit(engine::tensor_request& r) noexcept override {
    return engine_.submit_quietly(r);
  }
  void wake_up() noexcept override { engine_.wake_up(); }
  void cancel(engine::tensor_request& r) override { engine_.cancel(r); }
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept override {
    return engine_.waiting(id);
  }
  [[nodiscard]] std::size_t hanging_devices() override { return 0; }
  void drain() noexcept override { engine_.drain(); }

 private:
  using scheduler_type = deferred::basic_tuned_scheduler<engine::trial_thread>;
  using core_type = engine::basic_engine_core<scheduler_type, serve::metrics_observer>;
  using backend_type = engine::executor_backend<runtime::host_executor, nothing>;

  std::vector<inference::served_model> models_;
  std::string none_;
  runtime::host_executor executor_{{.pool_bytes = std::size_t{256} << 20U}};
  backend_type backend_{executor_};
  engine::basic_engine<core_type, backend_type, engine::inline_completion<deliver>> engine_;
};

enum kind : std::uint8_t { live, binary, json, long_binary, long_json, kinds };

/// The requests, whole.
std::array<std::string, kinds> make_requests() {
  const auto post = [](const std::string& body, const std::string& fields,
                       const char* model = "lenet") {
    return fmt::format(
        "POST /v2/models/{}/infer HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}", model,
        fields, body.size(), body);
  };
  const auto binary_fields = [](const std::string& described) {
    return fmt::format(
        "Inference-Header-Content-Length: {}\r\nContent-Type: application/octet-stream\r\n",
        described.size());
  };
  const std::string head = R"({"inputs":[{"name":"image","datatype":"FP32","shape":[1,28,28,1],)";
  std::string values;
  std::string bytes;
  for (std::size_t i = 0; i < pixels; ++i) {
    const float grey = static_cast<float>(i % 256) / 255.0F;
    values += fmt::format("{}{}", i > 0 ? "," : "", grey);
    bytes.append(reinterpret_cast<const char*>(&grey), sizeof(grey));
  }
  const std::string described =
      head +
      R"("parameters":{"binary_data_size":3136}}],"parameters":{"binary_data_output":true}})";
  const std::string long_head =
      fmt::format(R"({{"inputs":[{{"name":"x","datatype":"FP32","shape":[1,{}],)", numbers);
  const std::string long_described = fmt::format(
      R"({}"parameters":{{"binary_data_size":{}}}}}],"parameters":{{"binary_data_output":true}}}})",
      long_head, 4 * numbers);
  std::string long_values = "1.5";
  for (std::int64_t i = 1; i < numbers; ++i) long_values += ",1.5";
  return {
      "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n",
      post(described + bytes, binary_fields(described)),
      post(head + "\"data\":[" + values + "]}]}", "Content-Type: application/json\r\n"),
      post(long_described + std::string(4 * numbers, '\0'), binary_fields(long_described), "large"),
      post(long_head + "\"data\":[" + long_values + "]}]}", "Content-Type: application/json\r\n",
           "large")};
}

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(2);
}

/// One connection of the client's.
class connection {
 public:
  explicit connection(std::uint16_t port) : socket_{socket(AF_INET, SOCK_STREAM, 0)} {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) fail("connect");
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) fail("send");
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  /// Waits for an answer of 200.
  void read() {
    std::size_t used = 0;
    for (;;) {
      const ssize_t n = recv(socket_, buffer_.data() + used, buffer_.size() - used, 0);
      if (n <= 0) fail("recv");
      used += static_cast<std::size_t>(n);
      const std::string_view got{buffer_.data(), used};
      const std::size_t end = got.find("\r\n\r\n");
      if (end == std::string_view::npos) continue;
      if (!got.starts_with("HTTP/1.1 200")) {
        fmt::print(stderr, "{}\n", got);
        std::exit(2);
      }
      const std::size_t length = got.find("Content-Length: ");
      if (used >= end + 4 + std::strtoul(buffer_.data() + length + 16, nullptr, 10)) return;
    }
  }

 private:
  int socket_;
  std::array<char, 8192> buffer_{};
};

struct turn {
  kind what = live;
  double seconds = 0;
  std::size_t connections = 0;
  kind beside = kinds;  // What two others post meanwhile, if anything.
};
struct result {
  std::uint64_t answered = 0;  // Of `what`.
  double p99_us = 0;
};

/// Posts one request after another for as long as a turn lasts.
void post_on(std::uint16_t port, std::string_view request, const std::atomic<bool>& is_over) {
  connection c{port};
  while (!is_over) {
    c.send(request);
    c.read();
  }
}

/// Answers each turn that comes with how its requests went.
[[noreturn]] void run_client(std::uint16_t port, int orders, int results) {
  const auto requests = make_requests();
  std::vector<connection> all;
  for (turn t; ::read(orders, &t, sizeof(t)) == sizeof(t);) {
    while (all.size() < t.connections) all.emplace_back(port);
    const std::span<connection> some{all.data(), t.connections};
    std::atomic<bool> is_over{false};
    std::vector<std::thread> others;
    for (int i = 0; t.beside != kinds && i < 2; ++i) {
      others.emplace_back([&] { post_on(port, requests[t.beside], is_over); });
    }
    using clock = std::chrono::steady_clock;
    std::vector<double> waits;
    std::vector<clock::time_point> sent(some.size(), clock::now());
    const auto end = clock::now() + std::chrono::duration<double>{t.seconds};
    for (const connection& c : some) c.send(requests[t.what]);
    while (clock::now() < end) {
      for (std::size_t i = 0; i < some.size(); ++i) {
        some[i].read();
        const auto now = clock::now();
        waits.push_back(std::chrono::duration<double, std::micro>{now - sent[i]}.count());
        sent[i] = now;
        some[i].send(requests[t.what]);
      }
    }
    for (connection& c : some) c.read();
    is_over = true;
    for (std::thread& o : others) o.join();
    const auto at = waits.begin() + static_cast<std::ptrdiff_t>(waits.size() * 99 / 100);
    std::ranges::nth_element(waits, at);
    const result r{waits.size() + some.size(), *at};
    if (write(results, &r, sizeof(r)) != sizeof(r)) fail("write");
  }
  std::exit(0);
}

double cpu_us() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, double otherwise) {
    return argc > i ? std::strtod(argv[i], nullptr) : otherwise;
  };
  const auto connections = static_cast<std::size_t>(number(1, 32));
  const double seconds = number(2, 1);
  const auto turns = static_cast<std::size_t>(number(3, 9));
  serve::http_server http{{}};
  http.listen();
  int orders[2];
  int results[2];
  if (pipe(orders) != 0 || pipe(results) != 0) fail("pipe");
  const pid_t client = fork();  // Before there are threads.
  if (client == 0) {
    close(orders[1]);  // Else there is always somebody who might give an order.
    run_client(http.port(), orders[0], results[1]);
  }
  const inference::options options;
  serve::metrics counters;
  inference::infer_app app{options, http, counters};
  auto models = std::make_unique<service>(app, counters);
  app.start(*models);
  std::thread serving{[&] { http.run(app); }};
  const auto take_turn = [&](const turn& t) {
    result r;
    if (write(orders[1], &t, sizeof(t)) != sizeof(t) ||
        read(results[0], &r, sizeof(r)) != sizeof(r)) {
      fail("the client has gone");
    }
    return r;
  };
  const auto measure = [&](kind what, double for_s) {
    const double before = cpu_us();
    const result r = take_turn({what, for_s, connections});
    return (cpu_us() - before) / static_cast<double>(r.answered);
  };
  for (const kind k : {live, binary, json}) (void)measure(k, seconds / 4);
  std::array<std::vector<double>, kinds> each;
  for (std::size_t i = 0; i < turns; ++i) {
    for (const kind k : {live, binary, json}) each[k].push_back(measure(k, seconds));
  }
  std::array<std::array<std::vector<double>, kinds + 1>, 2> waits;  // By what is beside, if any.
  for (const kind k : {long_binary, long_json})
    (void)take_turn({binary, seconds / 4, connections, k});
  for (std::size_t i = 0; i < turns; ++i) {
    for (const kind what : {live, binary}) {
      for (const kind k : {kinds, long_binary, long_json}) {
        waits[what][k].push_back(take_turn({what, seconds, connections, k}).p99_us);
      }
    }
  }
  close(orders[1]);
  waitpid(client, nullptr, 0);
  http.stop();
  serving.join();
  app.end();
  models->drain();
  models.reset();
  fmt::print(
      "{} connections, {} turns of {} s: us of server CPU a request, median (least to most)\n",
      connections, turns, seconds);
  for (const auto& [name, k] : {std::pair{"live", live}, {"binary", binary}, {"JSON", json}}) {
    fmt::print("{:8} {:6.2f} ({:.2f} to {:.2f}), beyond live {:6.2f}\n", name, median(each[k]),
               std::ranges::min(each[k]), std::ranges::max(each[k]),
               median(each[k]) - median(each[live]));
  }
  bool is_met = median(each[binary]) - median(each[live]) <= most_us;
  if (!is_met) fmt::print("binary: more than {} us beyond live\n", most_us);
  for (const kind what : {live, binary}) {
    fmt::print("{} connections, {}: 99th percentile of the waits in us\n", connections,
               what == live ? "live" : "binary");
    for (const auto& [name, k] :
         {std::pair{"alone", kinds}, {"beside binary", long_binary}, {"beside JSON", long_json}}) {
      const std::vector<double>& all = waits[what][k];
      const double times = median(all) / median(waits[what][kinds]);
      fmt::print("{:14} {:8.0f} ({:.0f} to {:.0f}), {:.2f} times\n", name, median(all),
                 std::ranges::min(all), std::ranges::max(all), times);
      if (times <= most_times) continue;
      is_met = false;
      fmt::print("{}: more than {} times\n", name, most_times);
    }
  }
  return is_met || seconds < 1 ? 0 : 1;
}
