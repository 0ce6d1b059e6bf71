// SPDX-License-Identifier: Apache-2.0
// cohort in an Asio server: loop_asio [PORT]. One thread runs the sockets, the core and its timer;
// a thread pool runs batches. A request is a line `MS X`, which asks for the square root of X
// within MS milliseconds. The answer is `X ROOT`, or `X` and the outcome. A client waits for each
// answer before it sends the next request.
#include <cohort/core/clock.hpp>
#include <cohort/engine/engine_core.hpp>

#include <boost/asio.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "my_model.hpp"

using namespace cohort;
namespace asio = boost::asio;
using asio::ip::tcp;

struct client_job : job {
  explicit client_job(asio::io_context& io)
      : has_ended{io, asio::steady_timer::time_point::max()} {}
  outcome how{};
  asio::steady_timer has_ended;  // Cancelled once the outcome is known.
};

class server {
 public:
  explicit server(std::uint16_t port) : acceptor_{io_, {asio::ip::address_v4::loopback(), port}} {
    for (unsigned i = 0; i < devices; ++i) core_.add_device(clock_.now());
    model_ = core_.add_model(my_model);
    std::printf("serving on port %d\n", acceptor_.local_endpoint().port());
    std::fflush(stdout);
    asio::co_spawn(io_, accept(), asio::detached);
  }
  void serve() { io_.run(); }

  // Carries out the core's decisions.
  void launch(const deferred::batch& b) noexcept {
    asio::post(gpus_, [&b, this] {  // The batch lives until its end is reported.
      run(b);
      asio::post(io_, [at = b.at(), this] {
        core_.on_complete(at, /*failed=*/false, clock_.now(), *this);
        turn();
      });
    });
  }
  void ended(request& r, outcome how) noexcept {
    auto& j = static_cast<client_job&>(r);
    j.how = how;
    j.has_ended.cancel();
  }
  void model_removed(model_id /*m*/) noexcept {}

 private:
  static constexpr unsigned devices = 2;

  /// After each event: handles due work, and sets the next wake-up.
  void turn() {
    core_.advance(clock_.now(), *this);
    const time_point wake = std::min(core_.next_wake(), clock_.now() + std::chrono::hours{1});
    timer_.expires_at(asio::steady_timer::time_point{wake.time_since_epoch()});
    timer_.async_wait([this](boost::system::error_code e) {
      if (!e) turn();
    });
  }
  asio::awaitable<void> accept() {
    for (;;) {
      auto socket = co_await acceptor_.async_accept(asio::use_awaitable);
      asio::co_spawn(io_, talk(std::move(socket)), asio::detached);
    }
  }
  /// Ends by an exception when the client disconnects.
  asio::awaitable<void> talk(tcp::socket socket) {
    for (std::string text;;) {
      const std::size_t n = co_await asio::async_read_until(
          socket, asio::dynamic_buffer(text, 1024), '\n', asio::use_awaitable);
      client_job j{io_};
      double within_ms = 0;
      const bool is_read = std::sscanf(text.c_str(), "%lf %f", &within_ms, &j.in) == 2;
      text.erase(0, n);
      std::string answer = "expected MS X";
      if (is_read) answer = std::to_string(j.in) + ' ' + co_await ask(j, from_ms(within_ms));
      answer += '\n';
      co_await asio::async_write(socket, asio::buffer(answer), asio::use_awaitable);
    }
  }
  asio::awaitable<std::string> ask(client_job& j, duration within) {
    j.model = model_;
    j.arrival = clock_.now();
    j.deadline = j.arrival + within;
    if (const auto why = core_.submit(j, j.arrival, *this))
      co_return "refused " + std::string{to_string(*why)};
    turn();
    boost::system::error_code cancelled;
    while (j.state != request_state::idle)
      co_await j.has_ended.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    co_return j.how == outcome::completed ? std::to_string(j.out) : std::string{to_string(j.how)};
  }

  steady_clock clock_;
  engine::engine_core core_;
  model_id model_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer timer_{io_};
  asio::thread_pool gpus_{devices};
};

int main(int argc, char** argv) {
  server{static_cast<std::uint16_t>(argc > 1 ? std::atoi(argv[1]) : 7000)}.serve();
}
