// SPDX-License-Identifier: Apache-2.0
#include "barrier.hpp"

#include <cohort/serve/server_life.hpp>

#include <cohort/core/error.hpp>
#include <cohort/serve/infer_request.hpp>

#include <fmt/format.h>

#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "log.hpp"
#include "process_facts.hpp"

namespace cohort::serve {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds{static_cast<std::int64_t>(seconds * 1e3)};
}

http_reply failure(int status, std::string_view message) {
  return {.status = status, .body = error_body(message)};
}

/// For later use: models, devices, caches.
constexpr std::size_t reserved_descriptors = 128;

/// Raises the process's limit of descriptors to `wanted`, or as far as permitted.
/// @returns The present limit.
std::size_t raise_descriptors(std::size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;  // The limit is unknown.
  if (limit.rlim_cur >= wanted) return wanted;
  const rlimit raised{.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max),
                      .rlim_max = limit.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

/// The management port's paths.
class management_app final : public http_app {
 public:
  explicit management_app(managed& pages) : pages_{pages} {}

  /// Sets the server to whose thread answers return. Before `run`.
  void run_on(http_server& own) { own_ = &own; }

  std::optional<http_reply> early_answer(const http_request& head) override {
    return page_at(head.path) == managed_page::none ? pages_.early_answer(head) : std::nullopt;
  }
  std::size_t body_limit(const http_request& head, std::size_t usual) override {
    return pages_.body_limit(head, usual);
  }
  void asked(const http_request& request, const std::shared_ptr<http_client>& client) override {
    const managed_page page = page_at(request.path);
    if (page == managed_page::none) return manage(request, client);
    if (!request.reads()) {
      http_reply r = failure(405, fmt::format("{} allows only GET", request.path));
      r.fields.emplace_back("Allow", "GET");
      return client->answer(std::move(r));
    }
    const std::lock_guard lock{mutex_};
    client->answer(last_.empty() ? of(page) : last_.at(page));
  }
  /// Freezes the pages: `managed` is no longer asked for them.
  void keep_last() {
    const std::lock_guard lock{mutex_};
    for (const managed_page p : {managed_page::live, managed_page::ready, managed_page::metrics}) {
      last_.emplace(p, of(p));
    }
  }
  /// On its thread: answers pending requests with that of a server that is not ready.
  void answer_rest() {
    for (const auto& client : std::exchange(waiting_, {})) client->answer(pages_.ready());
  }
  std::string error_body(int /*status*/, std::string_view message) override {
    return serve::error_body(message);
  }
  void answered(int /*status*/) override {}
  void draining() override {}
  [[nodiscard]] bool is_probe(std::string_view path) const override {
    return page_at(path) != managed_page::none;
  }

 private:
  /// Requests `managed::manage`. Its answer comes from another thread, perhaps after the server is
  /// gone. So it holds no client, which would have to be destroyed before its server.
  void manage(const http_request& request, const std::shared_ptr<http_client>& client) {
    const std::lock_guard lock{mutex_};
    if (!last_.empty()) return client->answer(failure(503, "the server is ending"));
    const std::weak_ptr<http_client> asking = client;
    waiting_.insert(client);
    client->on_gone([this, asking] { waiting_.erase(asking.lock()); });
    pages_.manage(request, [this, asking](http_reply r) {
      own_->post([this, asking, r = std::move(r)] {
        const auto there = asking.lock();
        if (waiting_.erase(there) > 0) there->answer(r);  // If not, `answer_rest` has answered.
      });
    });
  }
  http_reply of(managed_page page) {
    return page == managed_page::live    ? pages_.live()
           : page == managed_page::ready ? pages_.ready()
                                         : pages_.metrics();
  }

  managed& pages_;
  http_server* own_ = nullptr;
  std::unordered_set<std::shared_ptr<http_client>> waiting_;  // Used by its thread.
  std::mutex mutex_;
  std::map<managed_page, http_reply> last_;
};

/// Keeps signals ignored between the end of a life and that of the process: without a signal set
/// the default handlers would return. Another life resets it, so that its own set handles them.
/// Never destroyed.
std::unique_ptr<asio::signal_set>& kept_signals() {
  static auto& kept = *new std::unique_ptr<asio::signal_set>;
  return kept;
}
void keep_signals() {
  static asio::io_context& never_run = *new asio::io_context{1};
  kept_signals() = std::make_unique<asio::signal_set>(never_run, SIGTERM, SIGINT, SIGHUP);
}

}  // namespace

void managed::manage(const http_request& request,
                     http_answer answer) {  // NOLINT(performance-unnecessary-value-param)
  answer(failure(404, fmt::format("{} is unknown", request.path)));
}

managed_page page_at(std::string_view path) noexcept {
  constexpr std::pair<std::string_view, managed_page> pages[] = {
      {"/live", managed_page::live},           {"/health", managed_page::live},
      {"/v2/health/live", managed_page::live}, {"/ready", managed_page::ready},
      {"/metrics", managed_page::metrics},     {"/v2/health/ready", managed_page::ready}};
  for (const auto& [name, page] : pages) {
    if (path == name) return page;
  }
  return managed_page::none;
}

struct server_life::state {
  enum class phase : std::uint8_t { starting, ready, leaving, draining, releasing, ended };
  static constexpr std::string_view not_waiting = "not waiting for what hangs";

  state(http_server& s, http_app& a, managed& p, life_options o)
      : settings{std::move(o)}, service{s}, app{a}, pages{p}, management{p} {
    // Before a signal can end a thread, and before a port reports that the server lives.
    kept_signals().reset();
    signals.add(SIGTERM);
    signals.add(SIGINT);
    signals.add(SIGHUP);
    await_signal();
    service.listen();
    if (settings.management_port) {
      // A few connections at a time suffice for probes. Others take turns.
      manager.emplace(http_options{.name = settings.name,
                                   .host = settings.host,
                                   .port = *settings.management_port,
                                   .body_limit = std::size_t{256} << 10U,
                                   .timeouts = {.header_s = 5, .read_s = 5, .write_s = 5},
                                   .max_connections = 64,
                                   .is_management_port = true});
      management.run_on(*manager);
      try {
        manager->listen();
      } catch (const resource_error& e) {
        throw resource_error{fmt::format("--management-port: {}", e.what())};
      }
    }
    fit_descriptors();
  }

  /// Ensures that clients cannot use up the descriptors, which probes, models and devices need:
  /// raises the process's limit, or serves fewer connections.
  void fit_descriptors() {
    const std::size_t needed = open_descriptors() + reserved_descriptors + settings.more_files +
                               service.max_descriptors() +
                               (manager ? manager->max_descriptors() : 0);
    const std::size_t there = raise_descriptors(needed);
    if (there >= needed) return;
    const std::size_t wanted = service.max_connections();
    service.limit_connections(wanted - std::min(wanted, needed - there));
    log_line(severity::warning, log_stream::err, settings.name,
             fmt::format("serves {} connections, not {}: the limit of open files is {}, {} are "
                         "needed (ulimit -n)",
                         service.max_connections(), wanted, there, needed));
  }

  void say(std::string_view what) const {
    log_line(severity::info, log_stream::out, settings.name, what);
  }

  /// Counts of hung work.
  struct hung {
    std::size_t devices = 0;
    std::size_t loads = 0;
    [[nodiscard]] std::size_t count() const noexcept { return devices + loads; }
  };
  [[nodiscard]] hung hanging() const { return {pages.hanging_devices(), pages.hanging_loads()}; }

  /// Prints the last line. @returns The exit status.
  [[nodiscard]] int say_last(std::string_view why, hung hanging) const {
    const std::size_t left = service.under_way();
    std::string loads;
    if (hanging.loads == 1) loads = ", and 1 load that hangs";
    if (hanging.loads > 1) loads = fmt::format(", and {} loads that hang", hanging.loads);
    say(fmt::format("{}: left {} requests and {} devices that hang{}", why, left, hanging.devices,
                    loads));
    return left + hanging.count() > 0 ? exit_left_requests : 0;
  }

  /// Exits if other threads may never end. Destructors may wait for a device.
  [[noreturn]] void leave_process(std::string_view why, hung hanging) const {
    const int status = say_last(why, hanging);
    flush_log();
    ::_exit(status);
  }

  void await_signal() {
    signals.async_wait([this](error_code e, int which) {
      if (e) return;
      if (which == SIGHUP) {
        read_keys();
      } else {
        hear(which == SIGTERM ? "SIGTERM" : "SIGINT", which == SIGTERM);
      }
      await_signal();
    });
  }

  void read_keys() const {
    if (std::ranges::none_of(settings.keys, &key_ring::has_file)) {
      log_line(severity::info, log_stream::err, settings.name,
               "SIGHUP: no key or token file to read again");
    }
    for (key_ring* const keys : settings.keys) {
      if (!keys->has_file()) continue;
      try {
        log_line(severity::info, log_stream::err, settings.name, keys->reload());
      } catch (const std::exception& e) {
        log_line(severity::error, log_stream::err, settings.name,
                 fmt::format("{}; the keys stay as they were", e.what()));
      }
    }
  }

  /// On the thread of signals and timers: ends the process, unless `end` is already doing so.
  void leave_now(std::string_view why, bool is_overdue) {
    const std::lock_guard alone{last_word};  // Never released: the process ends.
    if (now == phase::ended) return;
    // Objects being released must not be asked. If they wait beyond their time, a device hangs.
    hung known = now == phase::releasing ? hung{} : hanging();
    if (is_overdue && known.count() == 0) known.devices = 1;
    leave_process(why, known);
  }

  /// At the end: waits briefly until clients of the management port have their answers.
  void answer_callers() {
    std::promise<void> said;
    manager->post([this, &said] {
      guarded(settings.name, "the last answers", [this] { management.answer_rest(); });
      said.set_value();
    });
    said.get_future().wait();
    const auto until = std::chrono::steady_clock::now() + milliseconds_of(settings.end_patience_s);
    while (manager->under_way() > 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }

  void hear(std::string_view signal, bool is_polite) {
    if (now == phase::starting) return leave_now(fmt::format("{} while starting", signal), false);
    if (now != phase::ready) return leave_now(fmt::format("a second signal, {}", signal), false);
    const std::size_t left = service.under_way();
    say(fmt::format("{}: draining {} requests", signal, left));
    deadline = std::chrono::steady_clock::now() + milliseconds_of(settings.drain_timeout_s);
    end_timer.expires_at(deadline + milliseconds_of(settings.end_patience_s));
    end_timer.async_wait([this](error_code e) {
      if (!e) leave_now(not_waiting, true);
    });
    now = phase::leaving;
    service.leave();
    duck_timer.expires_after(is_polite ? milliseconds_of(settings.lame_duck_s)
                                       : std::chrono::milliseconds{0});
    duck_timer.async_wait([this](error_code e) {
      if (e) return;
      now = phase::draining;
      const std::chrono::duration<double> left_s = deadline - std::chrono::steady_clock::now();
      service.drain(std::max(0.0, left_s.count()));
    });
  }

  life_options settings;
  http_server& service;
  http_app& app;
  managed& pages;
  std::optional<http_server> manager;
  management_app management;    // Its clients belong to the server, and are destroyed first.
  asio::io_context context{1};  // For signals and timers.
  asio::signal_set signals{context};
  asio::steady_timer duck_timer{context};
  asio::steady_timer end_timer{context};
  std::atomic<phase> now{phase::starting};
  std::mutex last_word;  // Guards the last line printed.
  std::chrono::steady_clock::time_point deadline;
  std::thread service_thread;
  std::thread manager_thread;
  std::thread life_thread;
};

server_life::server_life(http_server& service, http_app& app, managed& pages, const life_options& o)
    : state_{std::make_unique<state>(service, app, pages, o)} {}

server_life::~server_life() {
  state& me = *state_;
  guarded(me.settings.name, "signals at the end", [] { keep_signals(); });
  me.service.stop();
  if (me.service_thread.joinable()) me.service_thread.join();
  if (me.manager) me.manager->stop();
  if (me.manager_thread.joinable()) me.manager_thread.join();
  me.context.stop();
  if (me.life_thread.joinable()) me.life_thread.join();
}

void server_life::begin() {
  state& me = *state_;
  me.life_thread = std::thread{[&me] {
    while (!guarded(me.settings.name, "a signal", [&me] { me.context.run(); })) continue;
  }};
  if (me.manager) me.manager_thread = std::thread{[&me] { me.manager->run(me.management); }};
  me.service_thread = std::thread{[&me] { me.service.run(me.app); }};
}

void server_life::become_ready(const std::function<void()>& start) {
  state& me = *state_;
  std::promise<void> started;
  me.service.post([&] {
    me.now = state::phase::ready;  // First: from here on a signal must let requests end.
    try {
      start();
      started.set_value();
    } catch (...) {
      started.set_exception(std::current_exception());
    }
  });
  started.get_future().get();
}

void server_life::wait() { state_->service_thread.join(); }

int server_life::end(const std::function<void()>& release) {
  state& me = *state_;
  if (me.manager) {
    me.management.keep_last();
    me.answer_callers();
  }
  me.pages.await_loads();
  {
    const std::lock_guard alone{me.last_word};
    // `release` would wait for it, and for nothing else.
    const state::hung hanging = me.hanging();
    if (hanging.count() > 0) me.leave_process(state::not_waiting, hanging);
    me.now = state::phase::releasing;
  }
  release();
  const std::lock_guard alone{me.last_word};
  me.now = state::phase::ended;
  if (me.service.under_way() > 0) return me.say_last("the drain time-out is over", {});
  me.say("drained");
  return 0;
}

std::string server_life::management_url() const {
  const state& me = *state_;
  if (!me.manager) return {};
  return fmt::format(" management {}", me.manager->url());
}

}  // namespace cohort::serve
