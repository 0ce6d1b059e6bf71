// SPDX-License-Identifier: Apache-2.0
#include "repository_service.hpp"

#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>

#include <fmt/format.h>
#include <formats/model_json.hpp>

#include <algorithm>
#include <exception>
#include <serve/barrier.hpp>
#include <serve/log.hpp>
#include <set>
#include <span>

#include "default_slo.hpp"
#include "service_observer.hpp"

namespace cohort::inference {
namespace {

/// Estimated latencies before a measurement: a batch takes as long as its rows in sequence.
std::vector<latency_point> one_by_one(double row_ms, std::uint32_t max_batch) {
  std::vector<latency_point> all{{1, from_ms(row_ms)}};
  if (max_batch > 1) all.push_back({max_batch, from_ms(row_ms * max_batch)});
  return all;
}

std::vector<latency_point> medians(const std::vector<formats::kept_point>& points, double margin) {
  std::vector<latency_point> all;
  for (const formats::kept_point& p : points)
    all.push_back({p.batch, from_ms(p.median_ms * margin)});
  return all;
}

}  // namespace

repository_service::repository_service(const options& o, outcome_listener& listener,
                                       serve::metrics& counters)
    : options_{o},
      counters_{counters},
      with_{onnx_backend::open(o)},
      cache_{o.cache_dir, serve::log_warning},
      memory_{o.model_memory_mb * 1'000'000},
      table_{{.time = o.load_timeout_s > 0 ? from_seconds(o.load_timeout_s) : unbounded}},
      threads_{[this](std::uint64_t job) {
        serve::guarded("inference_server", "a load",
                       [&] { later([this, job] { job_is_over(job); }); });
      }} {
  const std::vector<formats::repository_model> all = formats::scan_repository(o.repository);
  const unsigned devices = devices_for(o, with_, all);
  executor_ = std::make_unique<runtime::host_executor>(
      runtime::host_options{.pool_bytes = o.model_memory_mb * 1'000'000, .queue_depth = 1024});
  counters_.expect_models(most_names);
  engine_ = make_live_engine(o, devices, most_models, *executor_, listener, counters);
  description_ =
      fmt::format("{}, {} device{}", with_.description(), devices, devices == 1 ? "" : "s");
  std::vector<std::string> names;
  for (const formats::repository_model& m : all) {
    if (!is_chosen(m.name)) continue;
    names.push_back(m.name);
    seen_.emplace(m.name, stamp_of(m));
  }
  if (o.load_models) names = *o.load_models;
  next_poll_ = steady_clock{}.now() + from_seconds(o.repository_poll_s);
  keeper_ = std::thread{[this] { keep(); }};
  try {
    load_all(names);
    for (const auto& shown : catalog_.all()) {
      at_start_.push_back(*shown);
      at_start_.back().counted.reset();  // The server may remove them before `at_start_` goes.
      at_start_.back().version.reset();
    }
    later([this] { is_ready_ = true; });
  } catch (...) {
    drain();
    keeper_.join();
    throw;
  }
}

repository_service::~repository_service() {
  drain();
  keeper_.join();
  engine_.reset();
}

void repository_service::drain() noexcept {
  {
    const std::lock_guard lock{mutex_};
    is_draining_ = true;
  }
  woken_.notify_one();
  engine_->drain();
}

void repository_service::later(std::function<void()> command) {
  {
    const std::lock_guard lock{mutex_};
    commands_.push_back(std::move(command));
  }
  woken_.notify_one();
}

/// Runs `work` on the keeper's thread. If it throws, `failed` is called.
void repository_service::later(const answer& failed, std::function<void()> work) {
  later([failed, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      serve::log_fault("inference_server", "the repository");
      const serve::fault f = serve::current_fault();
      failed(f.status, f.message);
    }
  });
}

void repository_service::load(const std::string& name, load_source from, answer done) {
  const answer told = logged(name, false, std::move(done));
  later(told, [this, name, from = std::move(from), told] { ask_load(name, from, told); });
}
/// Logs how a load ends, then calls its caller.
/// @param is_known Whether the folder has a model of this name: clients may send any.
repository_service::answer repository_service::logged(const std::string& name, bool is_known,
                                                      answer done) {
  return [this, name, is_known, done = std::move(done), asked = steady_clock{}.now()](
             int status, const std::string& why) {
    if (why.empty()) {
      serve::log_line(serve::severity::info,
                      fmt::format("model '{}': loaded, {}, in {:.2f} s", name, versions_of(name),
                                  to_seconds(steady_clock{}.now() - asked)));
    } else if (!is_leaving_ && status != step_failed &&
               ((is_known && status != 409) || problems_.contains(name))) {
      report(is_served(name) ? fmt::format("{}; model '{}' is served as it was", why, name) : why);
      if (is_known) problems_.emplace(name, why);
    }
    count_failed();
    done(status, why);
  };
}
void repository_service::unload(const std::string& name, answer done) {
  later(done, [this, name, done, asked = steady_clock{}.now()] {
    const std::string versions = versions_of(name);
    const bool was_there = unload_now(name);
    count_failed();
    if (was_there) {
      serve::log_line(serve::severity::info,
                      fmt::format("model '{}': unloaded{}{}, in {:.2f} s", name,
                                  versions.empty() ? " while it was being loaded" : ", ", versions,
                                  to_seconds(steady_clock{}.now() - asked)));
    }
    done(200, {});  // Unloading a model that is not loaded succeeds, as in Triton.
  });
}
void repository_service::index(std::function<void(std::vector<repository_entry>)> done,
                               answer failed) {
  later(failed, [this, done = std::move(done)] { done(index_now()); });
}
void repository_service::submitted_by(std::function<void(std::function<void()>)> post) {
  const std::lock_guard lock{mutex_};
  post_ = std::move(post);
}

void repository_service::leave() {
  later([this] {
    is_leaving_ = true;
    for (const std::string& name : table_.wanted()) abandon(name, 503, "draining");
    if (measuring_) stop_measuring(std::string{measuring_->which.first});
  });
}

void repository_service::keep() {
  std::unique_lock lock{mutex_};
  while (!is_draining_) {
    if (!commands_.empty()) {
      const std::function<void()> command = std::move(commands_.front());
      commands_.pop_front();
      lock.unlock();
      serve::guarded("inference_server", "the repository", command);
      lock.lock();
      continue;
    }
    lock.unlock();
    serve::guarded("inference_server", "the repository", [this] {
      look_at_time();
      measure_some();
      poll();
    });
    std::optional<time_point> next = table_.next();
    if (const auto at = next_poll()) next = std::min(next.value_or(*at), *at);
    if (measuring_job_ != 0 && options_.load_timeout_s > 0) {
      const time_point batch = measuring_since_ + from_seconds(options_.load_timeout_s);
      next = std::min(next.value_or(batch), batch);
    }
    lock.lock();
    const auto has_work = [this] { return is_draining_ || !commands_.empty(); };
    if (next) {
      woken_.wait_for(lock, *next - steady_clock{}.now(), has_work);
    } else {
      woken_.wait(lock, has_work);
    }
  }
}

void repository_service::count_failed() {
  const auto is_lost = [this](const auto& problem) { return !is_served(problem.first); };
  const auto lacks = [this](const auto& i) { return !missing_steps(*i.second.shown).empty(); };
  failed_ = static_cast<std::size_t>(std::ranges::count_if(problems_, is_lost) +
                                     std::ranges::count_if(instances_, lacks));
}

/// Reports a problem to the operator, who may see the folder's path.
void repository_service::report(const std::string& why) const {
  serve::log_line(serve::severity::error, fmt::format("{}: {}", options_.repository, why));
}

/// Whether --models names it, or is not given.
bool repository_service::is_chosen(const std::string& name) const {
  return options_.models.empty() || std::ranges::count(options_.models, name) > 0;
}

bool repository_service::is_served(const std::string& name) const {
  const auto at = instances_.lower_bound({name, {}});
  return at != instances_.end() && at->first.first == name;
}

/// The versions that are served, as text; empty: none.
std::string repository_service::versions_of(const std::string& name) const {
  std::string all;
  for (auto at = instances_.lower_bound({name, {}});
       at != instances_.end() && at->first.first == name; ++at) {
    all += fmt::format("{}{}", all.empty() ? "" : ", ", at->first.second);
  }
  if (all.empty()) return all;
  return (all.find(',') == std::string::npos ? "version " : "versions ") + all;
}

/// Returns `found`, the owner of the metrics of a model or version. Throws if it is null.
live_engine::owner repository_service::held(const std::string& name, live_engine::owner found) {
  if (found == nullptr) {
    throw resource_error{
        fmt::format("model '{}': answers of {} other models are held", name, most_names)};
  }
  return found;
}

/// Makes an ensemble. The engine does not know it, only the models of its steps.
repository_service::instance repository_service::ensemble_of(opened_version v) {
  loaded_version& loaded = v.loaded;
  loaded.meta.version = fmt::to_string(v.number);
  const std::string name = loaded.meta.name;
  live_engine::owner counted = held(name, counters_.find_model(name));
  live_engine::owner version = held(name, counters_.find_version(name, loaded.meta.version));
  instance i{.id = {},
             .factory = nullptr,
             .shown = nullptr,
             .how = {.name = name,
                     .latency = latency_curve{table_latency{{{1, duration{1}}}}, 1},
                     .slo = loaded.meta.slo},
             .memory = std::move(v.memory),
             .points = {{1, 0, 0}}};  // There is nothing to measure.
  i.shown = std::make_shared<const served_model>(
      served_model{.id = {},
                   .meta = std::move(loaded.meta),
                   .row = model_id{static_cast<std::uint32_t>(counted->index())},
                   .ensemble = std::move(loaded.ensemble),
                   .config = formats::to_json(loaded.config),
                   .counted = std::move(counted),
                   .version = std::move(version)});
  return i;
}

repository_service::instance repository_service::instance_of(opened_version v) {
  loaded_version& loaded = v.loaded;
  if (loaded.ensemble) return ensemble_of(std::move(v));
  const bool is_measured = !v.points.empty();
  const std::uint32_t batch_max =
      is_measured ? loaded.max_batch : std::min(first_batch, loaded.max_batch);
  const double margin = options_.profile_margin;
  const std::vector<latency_point> expected =
      is_measured ? medians(v.points, margin) : one_by_one(margin * v.row_ms, batch_max);
  const std::string name = loaded.meta.name;
  instance i{.id = {},
             .factory = std::move(loaded.factory),
             .shown = nullptr,
             .how = {.name = name,
                     .latency = latency_curve{table_latency{expected}, batch_max},
                     .slo = {},
                     .queue_capacity = options_.queue_capacity,
                     .batch_max = loaded.meta.runs_alone ? loaded.most_rows : batch_max},
             .memory = std::move(v.memory),
             .max_batch = loaded.max_batch,
             .most_rows = loaded.most_rows,
             .slo = loaded.config.slo,
             .queue_timeout = loaded.config.queue_timeout(),
             .points = std::move(v.points),
             .key = std::move(loaded.key),
             .is_known = !loaded.open || loaded.open->runs.sample() != nullptr};
  i.how.longest_wait = loaded.config.longest_wait();
  if (const std::uint32_t most = loaded.config.queue_size(); most > 0) {
    // The queue counts rows, so whatever the limit is, leave room for one largest request.
    i.how.queue_capacity = std::min(i.how.queue_capacity, std::max(most, loaded.most_rows));
  }
  set_slo(i, loaded.meta);
  loaded.meta.version = fmt::to_string(v.number);
  const runtime::model_interface& io = i.factory->info();
  live_engine::owner counted = held(name, counters_.find_model(name));
  live_engine::owner version = held(name, counters_.find_version(name, loaded.meta.version));
  i.shown = std::make_shared<const served_model>(served_model{
      .id = {},
      .meta = std::move(loaded.meta),
      .row = model_id{static_cast<std::uint32_t>(counted->index())},
      .input = runtime::row_layout{io.inputs, io.max_size},
      .output = runtime::row_layout{io.outputs, io.max_size},
      .open = std::move(loaded.open),
      .config = formats::to_json(loaded.config, with_.cuda_device ? formats::instance_kind::gpu
                                                                  : formats::instance_kind::cpu),
      .counted = std::move(counted),
      .version = std::move(version)});
  return i;
}

/// Sets the configured SLO. Without one, no request is dropped, and batches aim at
/// `default_slo_of`.
void repository_service::set_slo(instance& i, serve::model_meta& meta) const {
  const duration possible = engine_->least_slo(i.how.latency);
  // A model whose latency is unknown may have any SLO.
  if (i.slo) {
    if (i.is_known && *i.slo < possible) {
      throw config_error{
          fmt::format("model '{}': slo_ms: got {}, expected at least {:.3f}, the time of one "
                      "request",
                      meta.name, to_ms(*i.slo), to_ms(possible))};
    }
    meta.slo = *i.slo;
  } else if (i.queue_timeout > duration{0}) {
    meta.slo = std::max(possible, with_largest_batch(i.queue_timeout, i.how.latency));
  } else if (meta.is_open && !i.is_known) {
    serve::log_line(serve::severity::info,
                    aim_at(meta, {open_slo, "requests of any shape"}, possible));
  } else {
    const latency_curve& l = i.how.latency;
    const default_slo d =
        default_slo_of({l(std::max(1U, l.max_batch() / 2)), l(l.max_batch()), l(1)}, 1,
                       std::max(1.5, options_.profile_margin));
    serve::log_line(
        serve::severity::info,
        aim_at(meta, d, std::max(possible, least_default_slo(options_.http_margin_us))));
  }
  i.how.slo = meta.slo;
  // A request of any length may use its full time before its device counts as hanging.
  const engine::health_options& h = options_.health;
  const bool has_lengths = std::ranges::any_of(meta.inputs, [&](const runtime::tensor_info& t) {
    const auto rows = static_cast<std::ptrdiff_t>(meta.batches || t.shape.size() < 2 ? 0 : 1);
    return !runtime::has_fixed_size(t.type) || std::find(t.shape.begin() + rows, t.shape.end(),
                                                         runtime::size_dimension) != t.shape.end();
  });
  if (meta.is_open && (has_lengths || !meta.runs_alone))
    i.how.longest_run = std::max(meta.slo, open_slo) /
                        std::max<std::int64_t>(1, std::llround(h.factor * h.patience));
}

/// Adds a model to the engine and sends requests there.
void repository_service::start(instance& i) {
  if (i.shown->ensemble) return;
  i.id = engine_->add(i.how, i.shown->counted, *i.factory);
  i.is_started = true;
  served_model now = *i.shown;
  now.id = i.id;
  i.shown = std::make_shared<const served_model>(std::move(now));
}

/// Removes a model that is no longer in the catalogue.
void repository_service::retire(instance i) {
  if (!i.is_started) return;  // The engine does not know it.
  const model_id id = i.id;
  const std::uint64_t number = ++retirements_;
  retired_.emplace(number, std::move(i));
  const auto remove = [this, id, number] {
    engine_->remove(id, [this, number](live_engine::remains left) {
      later([this, number, left = std::move(left)]() mutable {
        left.reset();
        retired_.erase(number);
      });
    });
  };
  std::function<void(std::function<void()>)> post;
  {
    const std::lock_guard lock{mutex_};
    post = post_;
  }
  // A thread that found it in the catalogue may be about to submit a request.
  post ? post([this, remove] { later(remove); }) : remove();
}

/// Replaces the versions that are served with those that a load has opened.
std::string repository_service::serve_opened(const std::string& name, opened_model found) {
  std::string why = std::move(found.why);
  std::vector<std::pair<name_and_version, instance>> fresh;
  try {
    for (opened_version& v : found.versions) {
      if (!why.empty()) break;
      const std::uint64_t number = v.number;
      fresh.emplace_back(name_and_version{name, number}, instance_of(std::move(v)));
      start(fresh.back().second);
    }
  } catch (const std::exception& e) {
    why = e.what();
  }
  if (!why.empty()) {
    for (auto& [which, i] : fresh) {
      if (i.is_started) retire(std::move(i));
    }
    // No problem is kept for names without a folder: clients may invent any number of them.
    if (found.has_folder || is_served(name)) problems_[name] = why;
    return why;
  }
  problems_.erase(name);
  std::vector<instance> old;
  for (auto at = instances_.begin(); at != instances_.end();) {
    if (at->first.first != name) {
      ++at;
      continue;
    }
    const bool is_replaced =
        std::ranges::find(fresh, at->first, &decltype(fresh)::value_type::first) != fresh.end();
    if (!is_replaced) catalog_.withdraw(name, at->second.shown->meta.version);
    old.push_back(std::move(at->second));
    at = instances_.erase(at);
  }
  for (auto& [which, i] : fresh) {
    catalog_.publish(i.shown);
    instances_.emplace(which, std::move(i));
  }
  for (instance& i : old) retire(std::move(i));
  stop_measuring(name);
  return {};
}

bool repository_service::unload_now(const std::string& name) {
  problems_.erase(name);
  const load_table::load* const load = table_.find(name);
  bool was_there = load != nullptr && load->is != load_table::phase::abandoned;
  abandon(name, 409, fmt::format("model '{}' was unloaded while it was being loaded", name));
  stop_measuring(name);
  for (auto at = instances_.begin(); at != instances_.end();) {
    if (at->first.first != name) {
      ++at;
      continue;
    }
    was_there = true;
    catalog_.withdraw(name, at->second.shown->meta.version);
    retire(std::move(at->second));
    at = instances_.erase(at);
  }
  return was_there;
}

std::vector<repository_entry> repository_service::index_now() const {
  const time_point now = steady_clock{}.now();
  // The reason of a load that is not abandoned; empty if there is none.
  const auto loading = [&](const std::string& name) -> std::string {
    const load_table::load* const l = table_.find(name);
    if (l == nullptr || l->is == load_table::phase::abandoned) return {};
    return fmt::format("being loaded, for {:.0f} s so far", to_seconds(now - l->since));
  };
  std::vector<repository_entry> all;
  std::set<std::string> known;
  for (const auto& [which, i] : instances_) {
    known.insert(which.first);
    std::string note = i.points.empty() ? "being measured, in small batches meanwhile" : "";
    if (const auto at = problems_.find(which.first); at != problems_.end()) {
      note = "as it was; the last load failed: " + at->second;
    }
    if (const std::string load = loading(which.first); !load.empty()) note = "as it was; " + load;
    const bool is_suspended = i.is_started && engine_->is_suspended(i.id);
    if (is_suspended) note = fmt::format("suspended for a while: {}", suspends_by);
    const std::string lacks = why_lacking(*i.shown);
    if (!lacks.empty()) note = lacks;
    const bool is_ready = !is_suspended && lacks.empty();
    all.push_back(
        {which.first, i.shown->meta.version, is_ready ? "READY" : "UNAVAILABLE", std::move(note)});
  }
  const auto add = [&](const std::string& name, const std::string& why) {
    if (known.insert(name).second) all.push_back({name, "", "UNAVAILABLE", why});
  };
  try {
    for (const formats::repository_model& m : formats::scan_repository(options_.repository)) {
      const std::string load = loading(m.name);
      const auto at = problems_.find(m.name);
      if (load.empty() && (at != problems_.end() || !m.problem.empty() || is_served(m.name))) {
        add(m.name, at != problems_.end() ? at->second : m.problem);
        continue;
      }
      known.insert(m.name);
      for (const formats::model_version& v : m.versions) {
        if (instances_.contains({m.name, v.number})) continue;
        all.push_back({m.name, fmt::to_string(v.number), load.empty() ? "UNAVAILABLE" : "LOADING",
                       load.empty() ? "unloaded" : load});
      }
    }
  } catch (const error& e) {
    serve::log_warning(e.what());  // Models that are served are listed all the same.
  }
  for (const std::string& name : table_.wanted()) {  // Loads of files that clients sent.
    if (known.insert(name).second) all.push_back({name, "", "LOADING", loading(name)});
  }
  for (const auto& [name, why] : problems_) add(name, why);
  std::ranges::sort(all, {}, &repository_entry::name);
  return all;
}

/// A model has been measured: its batches may now have the full size.
void repository_service::measured(const name_and_version& which,
                                  const std::vector<formats::kept_point>& points) {
  instance& old = instances_.at(which);
  if (cache_.is_on()) cache_.keep_profile(which.first, {old.key, points});
  instance fresh = old;
  fresh.is_started = false;
  fresh.points = points;
  fresh.how.batch_max = old.most_rows;
  fresh.how.latency =
      latency_curve{table_latency{medians(points, options_.profile_margin)}, old.max_batch};
  served_model shown = *old.shown;
  set_slo(fresh, shown.meta);
  fresh.shown = std::make_shared<const served_model>(std::move(shown));
  start(fresh);
  catalog_.publish(fresh.shown);
  retire(std::exchange(old, std::move(fresh)));
  serve::log_line(
      serve::severity::info,
      fmt::format("model '{}': measured, {}", which.first,
                  old.shown->meta.runs_alone ? "each request runs alone"
                                             : fmt::format("batches of up to {}", old.max_batch)));
}

}  // namespace cohort::inference
