// SPDX-License-Identifier: Apache-2.0
// cohort in an epoll loop: loop_epoll [PORT]. One thread runs the sockets, the core and its timer;
// each batch runs on its own thread, as on a GPU stream. A request is a line `MS X`: the square
// root of X within MS milliseconds. The answer is `X ROOT`, or `X` and the outcome.
#include <cohort/core/clock.hpp>
#include <cohort/engine/engine_core.hpp>

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "my_model.hpp"

using namespace cohort;
using namespace std::chrono_literals;

struct client {
  explicit client(int socket) : fd{socket} {}
  client(const client&) = delete;
  client& operator=(const client&) = delete;
  ~client() { close(fd); }  // After the client has gone and its last request has ended.

  void tell(const job& of, const std::string& what) const {
    const std::string line = std::to_string(of.in) + ' ' + what + '\n';
    (void)!write(fd, line.data(), line.size());
  }
  const int fd;
  std::string text;  // The incomplete next line.
};
struct client_job : job {
  std::shared_ptr<client> from;
};

class server {
 public:
  explicit server(std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    if (bind(listener_, address, size) != 0 || listen(listener_, 64) != 0 || pipe(ends_) != 0 ||
        getsockname(listener_, address, &size) != 0) {
      throw std::system_error{errno, std::generic_category()};
    }
    for (const int fd : {listener_, timer_, ends_[0]}) watch(fd);
    for (int i = 0; i < 2; ++i) core_.add_device(clock_.now());
    model_ = core_.add_model(my_model);
    std::printf("serving on port %d\n", ntohs(at.sin_port));
    std::fflush(stdout);
  }
  void serve() {
    for (epoll_event e{};;) {
      if (epoll_wait(epoll_, &e, 1, -1) != 1) continue;
      if (e.data.fd == listener_) {
        add_client();
      } else if (e.data.fd == ends_[0]) {
        device_id d;
        if (read(ends_[0], &d, sizeof(d)) == sizeof(d))
          core_.on_complete(d, /*failed=*/false, clock_.now(), *this);
      } else if (e.data.fd == timer_) {
        std::uint64_t expirations = 0;
        (void)!read(timer_, &expirations, sizeof(expirations));
      } else {
        read_from(clients_[e.data.fd]);
      }
      core_.advance(clock_.now(), *this);  // After each event: handle due work,
      set_timer();                         // then set the next wake-up.
    }
  }

  // Carries out the core's decisions.
  void launch(const deferred::batch& b) noexcept {
    std::thread{[&b, this] {  // The batch lives until its end is reported.
      run(b);
      (void)!write(ends_[1], &b.device, sizeof(b.device));
    }}
        .detach();
  }
  void ended(request& r, outcome how) noexcept {
    const std::unique_ptr<client_job> j{&static_cast<client_job&>(r)};
    j->from->tell(*j,
                  how == outcome::completed ? std::to_string(j->out) : std::string{to_string(how)});
  }
  void model_removed(model_id /*m*/) noexcept {}

 private:
  void watch(int fd) const {
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.fd = fd;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e);
  }
  void set_timer() const {
    const time_point wake = core_.next_wake();
    itimerspec at{};  // Zeros: no timer.
    if (wake != never) {
      const auto ns = std::max<duration::rep>(1, wake.time_since_epoch().count());
      at.it_value = {ns / 1'000'000'000, ns % 1'000'000'000};
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &at, nullptr);
  }
  void add_client() {
    const int fd = accept(listener_, nullptr, nullptr);
    if (fd < 0) return;
    clients_[fd] = std::make_shared<client>(fd);
    watch(fd);
  }
  void read_from(const std::shared_ptr<client>& c) {
    char bytes[4096];
    const ssize_t n = read(c->fd, bytes, sizeof(bytes));
    if (n <= 0) {
      const int fd = c->fd;
      epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
      clients_.erase(fd);
      return;
    }
    c->text.append(bytes, static_cast<std::size_t>(n));
    for (std::size_t end; (end = c->text.find('\n')) != std::string::npos;) {
      auto j = std::make_unique<client_job>();
      j->from = c;
      double within_ms = 0;
      if (std::sscanf(c->text.c_str(), "%lf %f", &within_ms, &j->in) != 2) j->in = -1;
      c->text.erase(0, end + 1);
      j->model = model_;
      j->arrival = clock_.now();
      j->deadline = j->arrival + from_ms(within_ms);
      if (const auto why = core_.submit(*j, j->arrival, *this)) {
        c->tell(*j, "refused " + std::string{to_string(*why)});
      } else {
        (void)j.release();  // Owned by `ended` from now on.
      }
    }
  }

  steady_clock clock_;
  engine::engine_core core_;
  model_id model_;
  int epoll_ = epoll_create1(0);
  int listener_ = socket(AF_INET, SOCK_STREAM, 0);
  int timer_ = timerfd_create(CLOCK_MONOTONIC, 0);
  int ends_[2] = {};  // A pipe that carries the devices of finished batches.
  std::map<int, std::shared_ptr<client>> clients_;
};

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  server{static_cast<std::uint16_t>(argc > 1 ? std::atoi(argv[1]) : 7000)}.serve();
}
