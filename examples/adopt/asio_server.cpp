// SPDX-License-Identifier: Apache-2.0
// A plain TCP server of your own: adopt_asio_server [PORT [ROUNDS]]; SIGTERM ends it. A request is
// a line, `NAME DEADLINE_MS X X X X`, and an answer, once it is ready: `NAME completed Y Y Y Y` (or
// `late`), `NAME dropped`, `NAME failed`, `NAME refused [REASON]`, `NAME error TEXT`. Who closes,
// or ends sending, has gone: what it still waits for is cancelled.
#include <cohort/core/clock.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/window.hpp>
#include <cohort/engine/engine.hpp>
#include <cohort/engine/executor_backend.hpp>
#include <cohort/engine/measure.hpp>
#include <cohort/engine/tensor_request.hpp>
#include <cohort/runtime/host.hpp>

#include <fmt/format.h>
#include <boost/asio.hpp>

#include <csignal>
#include <cstdlib>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "my_model.hpp"

using namespace cohort;
namespace asio = boost::asio;
using asio::ip::tcp;
using model_type = square_roots<runtime::host_executor>;  // As in loop.cpp: yours.
using backend_type = engine::executor_backend<runtime::host_executor, model_type>;
// Deadlines are the clients' and may be far off: nobody waits while the device is free.
using core_type = engine::basic_engine_core<deferred::basic_scheduler<deferred::eager>>;
constexpr std::uint32_t batch_max = 16;
constexpr std::size_t longest_line = 1024;
constexpr std::size_t most_open = 1024;  // Requests and answers of a connection; then it must read.

class connection;
struct job : engine::tensor_request {
  std::shared_ptr<connection> from;  // Which must be there when it ends.
  std::list<job>::iterator self;
  std::string name;
  numbers in, out;
};

struct to_sockets {  // Outcomes, from the engine's thread.
  asio::io_context* io;
  void operator()(request& r, outcome how) const;
};
using engine_type =
    engine::basic_engine<core_type, backend_type, engine::inline_completion<to_sockets>>;
struct service {
  engine_type* engine;
  model_id model;
  std::map<std::string, int> ends;  // How requests ended, for the last line.
};

/// A client. On the thread of the sockets alone.
class connection : public std::enable_shared_from_this<connection> {
 public:
  connection(tcp::socket s, service& to) : socket_{std::move(s)}, service_{to} {}

  void read() {
    if (is_reading_ || has_gone_ || open_.size() + answers_.size() >= most_open) return;
    is_reading_ = true;
    asio::async_read_until(socket_, asio::dynamic_buffer(text_, longest_line), '\n',
                           [me = shared_from_this()](boost::system::error_code e, std::size_t n) {
                             me->is_reading_ = false;
                             if (e) return me->gone();  // Also a line that is too long.
                             me->take(me->text_.substr(0, n - 1));
                             me->text_.erase(0, n);
                             me->read();
                           });
  }
  void ended(job& j, outcome how) {
    std::string line = fmt::format("{} {}", j.name, to_string(how));
    if (how == outcome::completed || how == outcome::late) {
      line += fmt::format(" {}", fmt::join(j.out, " "));
    }
    ++service_.ends[std::string{to_string(how)}];
    const auto me = std::move(j.from);  // Erasing the job must not end this.
    open_.erase(j.self);
    answer(std::move(line));
    read();
  }
  void gone() {
    has_gone_ = true;
    if (boost::system::error_code ignored; socket_.is_open()) socket_.close(ignored);
    for (job& j : open_) service_.engine->cancel(j);
  }

 private:
  void take(const std::string& line) {
    std::istringstream words{line};
    job& j = open_.emplace_back();
    j.self = std::prev(open_.end());
    double deadline_ms = 0;
    words >> j.name >> deadline_ms;
    for (float& x : j.in) words >> x;
    if (!words || !(words >> std::ws).eof() || !(deadline_ms > 0 && deadline_ms <= 1e6)) {
      answer((j.name.empty() ? "?" : j.name) +
             " error expected NAME DEADLINE_MS X X X X, a deadline up to 1000000");
      return open_.pop_back();
    }
    j.model = service_.model;
    j.arrival = steady_clock{}.now();
    j.deadline = j.arrival + from_ms(deadline_ms);
    j.input = std::as_bytes(std::span{j.in});
    j.output = std::as_writable_bytes(std::span{j.out});
    j.from = shared_from_this();
    if (const auto why = service_.engine->submit(j)) {
      ++service_.ends["refused"];
      answer(fmt::format("{} refused {}", j.name, to_string(*why)));
      open_.pop_back();
    }
  }
  void answer(std::string line) {
    if (has_gone_) return;
    answers_.push_back(std::move(line) + '\n');
    if (answers_.size() == 1) write();
  }
  void write() {
    asio::async_write(socket_, asio::buffer(answers_.front()),
                      [me = shared_from_this()](boost::system::error_code e, std::size_t) {
                        if (e) return me->gone();
                        me->answers_.pop_front();
                        if (!me->answers_.empty()) me->write();
                        me->read();
                      });
  }

  tcp::socket socket_;
  service& service_;
  std::string text_;
  std::list<job> open_;
  std::deque<std::string> answers_;
  bool is_reading_ = false;
  bool has_gone_ = false;
};

void to_sockets::operator()(request& r, outcome how) const {
  asio::post(*io, [&j = static_cast<job&>(r), how] { j.from->ended(j, how); });
}

int main(int argc, char** argv) {
  const auto port = static_cast<std::uint16_t>(argc > 1 ? std::atoi(argv[1]) : 7000);
  asio::io_context io;
  runtime::host_executor executor;
  auto model = std::make_unique<model_type>(executor, argc > 2 ? std::atoi(argv[2]) : 1000);
  const numbers sample{1, 2, 3, 4};
  const auto measured = engine::measure(executor, *model, std::as_bytes(std::span{sample}),
                                        {.max_batch = batch_max, .repeats = 3});
  const latency_curve latency{engine::latency_of(measured), batch_max};

  backend_type backend{executor};
  engine_type engine{core_type{}, backend, engine::inline_completion{to_sockets{&io}}};
  backend.bind(engine);
  const device_id device = engine.add_device([&](device_id d) { backend.add_device(d); });
  const model_id id = engine.add_model(
      {.scheduling = {.latency = latency, .slo = 3 * latency(4)}}, [&](model_id m) {
        backend.add_model(m, device, {.batch_max = batch_max, .instance = std::move(model)});
      });
  service to{.engine = &engine, .model = id, .ends = {}};

  tcp::acceptor acceptor{io, tcp::endpoint{asio::ip::address_v4::loopback(), port}};
  std::list<std::weak_ptr<connection>> clients;
  const std::function<void()> accept = [&] {
    acceptor.async_accept([&](boost::system::error_code e, tcp::socket s) {
      if (!acceptor.is_open()) return;
      clients.remove_if([](const auto& c) { return c.expired(); });
      if (!e) {
        const auto c = std::make_shared<connection>(std::move(s), to);
        clients.push_back(c);
        c->read();
      }
      accept();
    });
  };
  accept();
  asio::signal_set signals{io, SIGINT, SIGTERM};
  signals.async_wait([&](boost::system::error_code, int) {
    acceptor.close();
    for (const auto& c : clients) {
      if (const auto client = c.lock()) client->gone();
    }
  });
  fmt::print("serving on port {}: a request takes {:.3f} ms\n", acceptor.local_endpoint().port(),
             to_ms(latency(1)));
  std::fflush(stdout);
  io.run();
  engine.drain();
  engine.join();  // Every request has ended,
  io.restart();
  io.run();  // and is told.
  for (const auto& [how, count] : to.ends) fmt::print("{} {}\n", count, how);
}
