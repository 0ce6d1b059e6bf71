// SPDX-License-Identifier: Apache-2.0
// The repository's work on threads that may hang: loading and measuring models.
#include "repository_service.hpp"

#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <serve/barrier.hpp>
#include <serve/log.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model_upload.hpp"
#include "onnx_loader.hpp"
#include "profile_run.hpp"
#include "warm_start.hpp"

namespace cohort::inference {
namespace {

/// Assumed time of a request before any has run, in milliseconds.
constexpr double unknown_ms = 10;

}  // namespace

/// Loads one model at a time, because they are timed. A slow one delays neither the others nor the
/// start, but once the maximum number of loads is running slowly, the rest wait for them.
void repository_service::load_all(const std::vector<std::string>& names) {
  std::vector<std::future<void>> slow;
  const auto has_ended = [](const std::future<void>& f) {
    return f.wait_for(duration{0}) == std::future_status::ready;
  };
  for (const std::string& name : names) {
    const auto told = std::make_shared<std::promise<void>>();
    ++to_come_;
    const answer done = [this, told](int /*status*/, const std::string& /*why*/) {
      --to_come_;
      told->set_value();
    };
    later(done, [this, name, done] { need(name, true, done); });
    std::erase_if(slow, has_ended);
    slow.push_back(told->get_future());
    const bool has_room = slow.size() <= load_limits{}.at_once;
    if (options_.exit_on_error) {
      slow.back().wait();  // With exit_on_error nothing is served before all models are loaded.
    } else if (has_room) {
      slow.back().wait_for(load_limits{}.slow);
    }
  }
}

void repository_service::ask_load(const std::string& name, load_source from, answer done) {
  if (is_leaving_) return done(503, "draining");
  const time_point now = steady_clock{}.now();
  if (const auto no = table_.against(name, now)) return done(no->status, no->why);
  table_.ask(name, now);
  load_job& job = loads_[name];
  job.waiting = std::make_shared<std::vector<answer>>();
  job.waiting->push_back(std::move(done));
  job.done = [all = job.waiting](int status, const std::string& why) {
    for (const answer& each : *all) each(status, why);
  };
  job.from = std::move(from);
  begin_loads();
}

/// Loads a model that is not served, or waits for its load if one is running.
/// @param is_known As in `logged`.
void repository_service::need(const std::string& name, bool is_known, answer done) {
  if (is_served(name)) return done(200, {});
  if (const auto at = loads_.find(name); at != loads_.end() && at->second.done) {
    at->second.waiting->push_back(std::move(done));
    return;
  }
  ask_load(name, {}, logged(name, is_known, std::move(done)));
}

/// The models that an ensemble, or an ensemble within it, needs in a version that is not served.
std::set<std::string> repository_service::missing_steps(const served_model& m) const {
  std::set<std::string> all;
  if (!m.ensemble) return all;
  each_step(catalog_, m, true, [&](const auto& /*of*/, const auto& step, const auto& found) {
    if (found == nullptr) all.insert(step.model);
  });
  return all;
}

/// Why an ensemble cannot answer; empty: it can.
std::string repository_service::why_lacking(const served_model& m) const {
  const std::set<std::string> missing = missing_steps(m);
  if (missing.empty()) return {};
  return fmt::format("its model '{}' is not served{}", *missing.begin(),
                     is_served(*missing.begin()) ? " in the version that it names" : "");
}

/// Loads the models that an ensemble lacks. If one fails the ensemble stays, and answers requests
/// once that model is loaded.
void repository_service::need_steps(const std::string& name, answer done) {
  std::set<std::string> missing;
  for (const auto& m : catalog_.versions(name)) missing.merge(missing_steps(*m));
  if (missing.empty()) return done(200, {});
  struct waiting {
    answer done;
    std::size_t left;
    std::string why{};
  };
  const auto all = std::make_shared<waiting>(waiting{std::move(done), missing.size()});
  for (const std::string& step : missing) {
    need(step, false, [this, all, name, step](int /*status*/, const std::string& why) {
      if (all->why.empty() && !why.empty()) {
        all->why = fmt::format("ensemble '{}': model '{}' is not loaded: {}", name, step, why);
      }
      if (--all->left > 0) return;
      if (!is_served(name)) {
        return all->done(409, fmt::format("model '{}' was unloaded while its models were being "
                                          "loaded",
                                          name));
      }
      for (const auto& m : catalog_.versions(name)) {
        const std::string lacks = why_lacking(*m);
        if (all->why.empty() && !lacks.empty()) {
          all->why = fmt::format("ensemble '{}': {}", name, lacks);
        }
      }
      if (!all->why.empty()) serve::log_warning(all->why);
      all->done(all->why.empty() ? 200 : step_failed, all->why);
    });
  }
}

void repository_service::begin_loads() {
  while (const auto name = table_.begin()) {
    load_job& job = loads_.at(*name);
    try {
      job.result = std::make_shared<opened_model>();
      const auto stop = std::make_shared<models::run_stop>();
      job.number =
          threads_.begin(stop, [this, name = *name, from = std::exchange(job.from, {}), stop,
                                into = job.result] { *into = open(name, from, *stop); });
    } catch (...) {
      const serve::fault f = serve::current_fault();
      const answer done = std::move(job.done);
      table_.end(*name);
      loads_.erase(*name);
      done(f.status, f.message);
    }
  }
  show_loads();
}

void repository_service::show_loads() {
  const std::size_t running = table_.count(load_table::phase::running);
  const std::size_t wanted = running + table_.count(load_table::phase::waiting);
  counters_.models_loading.set(static_cast<double>(wanted));
  const std::size_t others = (measuring_job_ == 0 ? 0 : 1) + (polling_job_ == 0 ? 0 : 1);
  {
    const std::lock_guard lock{mutex_};
    abandoned_ = threads_.size() - running - others;
  }
  job_ended_.notify_all();
  counters_.loads_abandoned.set(static_cast<double>(abandoned_));
}

/// Abandons loads that have taken too long, and begins those that there is room for.
void repository_service::look_at_time() {
  const time_point now = steady_clock{}.now();
  for (const std::string& name : table_.slow(now)) {
    serve::log_warning(fmt::format("model '{}': still loading after {:.0f} s", name,
                                   to_seconds(now - table_.find(name)->since)));
  }
  for (const std::string& name : table_.overdue(now)) {
    const std::uint64_t job = loads_.at(name).number;
    problems_[name] = fmt::format(
        "model '{}' is not loaded after {} s, --load-timeout-s: {}", name, options_.load_timeout_s,
        job != 0 ? "its load is abandoned" : "other loads went before it");
    counters_.load_timeouts.add(1);
    abandon(name, 504, problems_[name]);
  }
  const duration limit = from_seconds(options_.load_timeout_s);
  if (measuring_job_ != 0 && limit > duration{0} && now - measuring_since_ >= limit) {
    counters_.load_timeouts.add(1);
    const std::shared_ptr<measurement> m = measuring_;
    stop_measuring(m->which.first);
    not_measured(
        instances_.at(m->which),
        fmt::format("a batch takes more than {} s, --load-timeout-s", options_.load_timeout_s));
  }
  begin_loads();
}

/// Abandons a load, and tells its callers why.
void repository_service::abandon(const std::string& name, int status, const std::string& why) {
  if (!table_.abandon(name)) return;
  load_job& job = loads_.at(name);
  const answer done = std::exchange(job.done, nullptr);
  if (job.number == 0) {
    loads_.erase(name);
  } else {
    give_up(job.number);
    job.result.reset();  // The job's thread frees it.
  }
  show_loads();
  done(status, why);
}

void repository_service::give_up(std::uint64_t job) {
  threads_.give_up(job);
  given_up_ = steady_clock{}.now();
}

void repository_service::await_loads() {
  constexpr std::chrono::seconds patience{1};
  std::promise<time_point> told;
  later([&] { told.set_value(given_up_); });  // After `leave` has been carried out.
  const duration left = told.get_future().get() + patience - steady_clock{}.now();
  std::unique_lock lock{mutex_};
  job_ended_.wait_for(lock, left, [this] { return abandoned_ == 0; });
}

void repository_service::job_is_over(std::uint64_t number) {
  threads_.forget(number);
  if (number == measuring_job_) {
    measuring_job_ = 0;
    return measured_some();
  }
  if (number == polling_job_) {
    polling_job_ = 0;
    return polled();
  }
  const auto at = std::ranges::find(loads_, number, [](const auto& l) { return l.second.number; });
  if (at != loads_.end()) return load_is_over(at);
  show_loads();  // The job was an abandoned measurement.
}

void repository_service::load_is_over(std::map<std::string, load_job>::iterator which) {
  const auto over = loads_.extract(which);
  const std::string& name = over.key();
  const load_job& job = over.mapped();
  const load_table::load was = table_.end(name);
  show_loads();  // First, because callers may look at it once they are told.
  if (was.is == load_table::phase::abandoned) {
    if (is_leaving_) return;
    const double seconds = to_seconds(steady_clock{}.now() - was.since);
    const auto at = problems_.find(name);
    if (at == problems_.end()) {  // It was unloaded.
      serve::log_line(
          serve::severity::info,
          fmt::format("model '{}': its load, which was given up, has ended after {:.0f} s", name,
                      seconds));
    } else {
      at->second = fmt::format(
          "model '{}': its load, which was abandoned, has ended after {:.0f} s: load it again",
          name, seconds);
      serve::log_warning(at->second);
    }
    return;
  }
  try {
    const std::string why = serve_opened(name, std::move(*job.result));
    if (!why.empty()) return job.done(400, why);
    need_steps(name, job.done);
  } catch (...) {
    serve::log_fault("inference_server", "a load");
    const serve::fault f = serve::current_fault();
    job.done(f.status, f.message);
  }
}

/// Opens all versions of a model that are to be served, or says why not.
repository_service::opened_model repository_service::open(const std::string& name,
                                                          const load_source& from,
                                                          models::run_stop& stop) {
  opened_model found;
  try {
    std::optional<upload_folder> sent;  // No longer read once the model is open.
    if (from.files) sent.emplace(name, *from.files);
    const formats::repository_model m =
        formats::scan_model(sent ? sent->path() : options_.repository, name, from.config);
    found.has_folder = !sent && !m.config_file.empty();
    for (const std::string& note : notes_on(m, with_, options_)) serve::log_warning(note);
    found.why = m.problem;
    for (const formats::model_version& v : m.versions) {
      if (!found.why.empty()) break;
      found.versions.push_back(open(m, v, stop));
    }
  } catch (const std::exception& e) {
    found.why = e.what();
  }
  return found;
}

/// Opens a version, ready for the engine. Throws on any problem.
repository_service::opened_version repository_service::open(const formats::repository_model& m,
                                                            const formats::model_version& v,
                                                            models::run_stop& stop) {
  opened_version o{
      .number = v.number,
      .loaded = {},
      .memory = memory_.take(
          m.name, m.config && m.config->memory_bytes ? *m.config->memory_bytes : v.bytes),
      .points = {}};
  o.loaded = load_version(m, v, with_, *executor_, &stop);
  // Notes on the configuration alone are logged already; others need the model.
  const std::vector<std::string> told = notes_on(m, with_, options_);
  for (const std::string& note : o.loaded.config.ignored) {
    if (std::ranges::find(told, note) == told.end()) serve::log_warning(note);
  }
  if (o.loaded.ensemble) return o;
  if (!o.loaded.note.empty()) serve::log_line(serve::severity::info, o.loaded.note);
  if (o.loaded.open && o.loaded.open->runs.sample() == nullptr) {
    o.points = {{1, unknown_ms, unknown_ms}};  // There is nothing to measure.
    if (const std::uint32_t most = o.loaded.max_batch; most > 1) {
      o.points.push_back({most, most * unknown_ms, most * unknown_ms});
    }
    return o;
  }
  o.points = kept_profile(o.loaded, stop);
  if (o.points.empty()) o.row_ms = row_ms(*o.loaded.factory, v.file, stop);
  return o;
}

/// The profile of an earlier start, if it is still valid; else empty.
std::vector<formats::kept_point> repository_service::kept_profile(const loaded_version& v,
                                                                  models::run_stop& stop) {
  if (!cache_.is_on()) return {};
  auto kept = cache_.find_profile(v.meta.name, v.key);
  if (!kept) return {};
  const std::string why = check_profile(*kept, v.max_batch, *v.factory, *executor_, &stop);
  if (why.empty()) return std::move(*kept);
  cache_.warn(
      fmt::format("cache: {}: {}; ignored", cache_.file_of("profile", v.meta.name, v.key), why));
  return {};
}

/// The shortest time of one row in a few runs.
double repository_service::row_ms(models::host_model_factory& f, const std::string& file,
                                  models::run_stop& stop) try {
  models::measured_model<runtime::host_executor> one{*executor_, f, 1, 0, &stop};
  runtime::host_executor::stream stream = executor_->make_stream();
  double ms = std::numeric_limits<double>::infinity();
  for (int k = 0; k < 4; ++k) ms = std::min(ms, to_ms(one.run(stream, 1).whole));
  return ms;
} catch (const error& e) {
  if (!f.info().has_sizes()) throw config_error{fmt::format("{}: {}", file, e.what())};
  throw config_error{
      fmt::format("{}: {} (of length {}: parameters max_length in config.pbtxt says another)", file,
                  e.what(), f.info().max_size)};
}

/// Begins one batch of the model being measured, or of the next one, unless that would disturb a
/// load.
void repository_service::measure_some() {
  const bool is_busy = measuring_job_ != 0 || table_.count(load_table::phase::running) > 0;
  if (!is_ready_ || is_leaving_ || is_busy || abandoned_ >= load_limits{}.abandoned) return;
  if (!measuring_) {
    const auto at =
        std::ranges::find_if(instances_, [](const auto& i) { return i.second.points.empty(); });
    if (at == instances_.end()) return;
    measuring_ = std::make_shared<measurement>(
        measurement{at->first, std::make_shared<models::run_stop>(), nullptr, at->second});
  }
  measuring_since_ = steady_clock{}.now();
  measuring_job_ = threads_.begin(measuring_->stop, [this, m = measuring_] {
    try {
      if (!m->run) {
        m->run = std::make_unique<profile_run>(*executor_, *m->of.factory, m->of.max_batch, 5,
                                               m->stop.get());
      }
      m->is_over = m->run->step();
    } catch (const std::exception& e) {
      m->why = e.what();
    }
  });
}

/// The batch that `measure_some` began has ended.
void repository_service::measured_some() {
  if (measuring_->why.empty() && !measuring_->is_over) return;
  const std::shared_ptr<measurement> m = std::move(measuring_);
  instance& i = instances_.at(m->which);
  try {
    if (!m->why.empty()) return not_measured(i, m->why + length_hint(i.factory->info().max_size));
    measured(m->which, m->run->points());
  } catch (const std::exception& e) {
    not_measured(i, e.what());
  }
}

/// A measurement has failed: the model continues with small batches and their known latency.
void repository_service::not_measured(instance& i, const std::string& why) {
  serve::log_warning(fmt::format("model '{}': cannot be measured: {}", i.how.name, why));
  i.points = {{1, to_ms(i.how.latency(1)), to_ms(i.how.latency(1))}};
}

/// When the next look at the folder is due; nothing: none is, or one is running.
std::optional<time_point> repository_service::next_poll() const {
  const bool waits = options_.repository_poll_s > 0 && is_ready_ && !is_leaving_;
  return waits && polling_job_ == 0 ? std::optional{next_poll_} : std::nullopt;
}

/// Begins a look at the folder when it is due; on a thread, as a network folder may be slow.
void repository_service::poll() {
  const time_point now = steady_clock{}.now();
  if (const auto at = next_poll(); !at || *at > now) return;
  next_poll_ = now + from_seconds(options_.repository_poll_s);
  polling_ = std::make_shared<look>();
  polling_job_ = threads_.begin(std::make_shared<models::run_stop>(),
                                [this, into = polling_] { *into = look_at_folder(); });
}

repository_service::look repository_service::look_at_folder() const {
  look found;
  try {
    for (const formats::repository_model& m : formats::scan_repository(options_.repository)) {
      if (is_chosen(m.name)) found.seen.emplace(m.name, stamp_of(m));
    }
  } catch (const std::exception& e) {
    found.why = e.what();
  }
  return found;
}

/// The look that `poll` began has ended.
void repository_service::polled() {
  next_poll_ = steady_clock{}.now() + from_seconds(options_.repository_poll_s);
  const std::shared_ptr<look> found = std::exchange(polling_, nullptr);
  if (is_leaving_) return;
  if (!found->why.empty()) {
    return serve::log_warning(fmt::format("{}; all models stay as they are", found->why));
  }
  const repository_changes changed = changes_between(seen_, found->seen);
  seen_ = std::move(found->seen);
  for (const std::string& name : changed.to_unload) {
    unload(name, [](int /*status*/, const std::string& /*why*/) {});
  }
  for (const std::string& name : changed.to_load) {
    const answer done = [this, name](int status, const std::string& /*why*/) {
      const bool is_refused = status == 409 || status == 503;  // Retried at the next look.
      if (const auto at = seen_.find(name); is_refused && at != seen_.end()) at->second.clear();
    };
    ask_load(name, {}, logged(name, true, done));
  }
}

/// Stops measuring the model's versions.
void repository_service::stop_measuring(const std::string& name) {
  if (!measuring_ || measuring_->which.first != name) return;
  if (measuring_job_ != 0) give_up(measuring_job_);
  measuring_job_ = 0;
  measuring_.reset();
  show_loads();
}

}  // namespace cohort::inference
