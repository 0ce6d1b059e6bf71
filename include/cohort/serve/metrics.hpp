// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics of an inference server.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/serve/metric_page.hpp>
#include <cohort/serve/model_statistics.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cohort::serve {

/// Events of the rows of a model's pipeline.
enum class row_event : std::uint8_t {
  made,       ///< Requests became a row.
  stretched,  ///< Requests joined a running row.
  split,      ///< A row was divided.
  held,       ///< A row waited for stragglers.
};

/// Why a request was refused before its body was read.
enum class shed_reason : std::uint8_t {
  expected_wait,   ///< It would wait too long behind the queue on its arrival.
  waited,          ///< It had waited too long at its turn.
  served_in_vain,  ///< As many as are admitted for its model are present.
};

/// Triton Inference Server's metrics of each version of a model: its statistics under other names.
class triton_metrics {
 public:
  explicit triton_metrics(metric_page& page) : page_{page} {}

  /// @param version Its number. @param s Never less than before, unless the version has changed.
  void show(std::size_t version, const model_statistics& s) const {
    const auto count = [version](const counter& row, std::uint64_t n, std::size_t value = 0) {
      row.raise_to(static_cast<double>(n), version, value);
    };
    const auto us = [&count](const counter& row, const time_spent& t) {
      count(row, static_cast<std::uint64_t>(t.total / std::chrono::microseconds{1}));
    };
    count(success_, s.success.count);
    for (std::size_t i = 0; i < s.failures.size(); ++i) count(failure_, s.failures[i], i);
    count(inferences_, s.inferences());
    count(executions_, s.executions());
    us(request_, s.success);
    us(queue_, s.queue);
    us(input_, s.compute_input);
    us(infer_, s.compute_infer);
    us(output_, s.compute_output);
    count(hits_, s.cache_hit.count);
    count(misses_, s.cache_miss.count);
    us(hit_, s.cache_hit);
    us(miss_, s.cache_miss);
  }
  void set_pending(std::size_t version, double rows) const { pending_.set(rows, version); }

 private:
  static metric_spec of(const char* name, const char* help) {
    return {.name = name, .help = help, .by = counted_by::version};
  }
  metric_page& page_;
  counter success_{page_, of("nv_inference_request_success", "Requests answered with results")};
  counter failure_{page_,
                   {.name = "nv_inference_request_failure",
                    .help = "Requests without a result, by reason",
                    .by = counted_by::version,
                    .label = "reason",
                    .values = {"REJECTED", "CANCELED", "BACKEND", "OTHER"}}};
  counter inferences_{page_, of("nv_inference_count", "Rows that ran")};
  counter executions_{page_, of("nv_inference_exec_count", "Batches that ran")};
  counter request_{page_, of("nv_inference_request_duration_us",
                             "Time from arrival to answer, in microseconds")};
  counter queue_{page_, of("nv_inference_queue_duration_us",
                           "Time from arrival to the start of a batch, in microseconds")};
  counter input_{page_, of("nv_inference_compute_input_duration_us",
                           "Time for reading requests, in microseconds")};
  counter infer_{page_, of("nv_inference_compute_infer_duration_us",
                           "Time from the start of a batch to its end, in microseconds")};
  counter output_{page_, of("nv_inference_compute_output_duration_us",
                            "Time for writing answers, in microseconds")};
  counter hits_{
      page_, of("nv_cache_num_hits_per_model", "Requests whose answer was in the response cache")};
  counter misses_{page_, of("nv_cache_num_misses_per_model",
                            "Computed requests whose answer was not in the response cache")};
  counter hit_{page_, of("nv_cache_hit_duration_per_model",
                         "Time for looking up answers that were in the response cache, in "
                         "microseconds")};
  counter miss_{page_, of("nv_cache_miss_duration_per_model",
                          "Time for looking up and keeping answers that were not in the response "
                          "cache, in microseconds")};
  gauge pending_{page_, of("nv_inference_pending_request_count", "Rows that wait for a batch")};
};

/// The metrics of a server, as members; below them, events that count in several of them, or use
/// the engine's types. Thread safety: add models and devices first; then any thread.
class metrics : public metric_page {
 public:
  counter requests{*this,
                   {.name = "cohort_requests_total",
                    .help = "Accepted requests that ended, by outcome",
                    .by = counted_by::model,
                    .label = "outcome",
                    .values = {to_string(outcome::completed), to_string(outcome::late),
                               to_string(outcome::dropped), to_string(outcome::cancelled),
                               to_string(outcome::failed)}}};
  counter refusals{
      *this,
      {.name = "cohort_refused_total",
       .help = "Requests not accepted, by reason",
       .by = counted_by::model,
       .label = "reason",
       .values = {to_string(refusal::unknown_model), to_string(refusal::queue_full),
                  to_string(refusal::too_big), to_string(refusal::deadline_infeasible),
                  to_string(refusal::draining), to_string(refusal::overloaded),
                  to_string(refusal::no_device), to_string(refusal::model_suspended)}}};
  counter shed{*this,
               {.name = "cohort_shed_total",
                .help = "Infer requests refused before their body was read because they would be "
                        "late, by reason",
                .by = counted_by::model,
                .label = "reason",
                .values = {"expected_wait", "waited", "served_in_vain"}}};
  counter cache_lookups{*this,
                        {.name = "cohort_response_cache_lookups_total",
                         .help = "Infer requests answered from the response cache (hit), or "
                                 "computed as their answer was not in it (miss)",
                         .by = counted_by::model,
                         .label = "result",
                         .values = {"hit", "miss"}}};
  gauge cache_bytes{*this,
                    {.name = "cohort_response_cache_bytes",
                     .help = "Memory that the answers in the response cache take"}};
  histogram batch_size{*this,
                       {.name = "cohort_batch_size",
                        .help = "Requests per dispatched batch",
                        .by = counted_by::model,
                        .buckets = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128}}};
  histogram request_seconds{*this,
                            {.name = "cohort_request_seconds",
                             .help = "Time from arrival to end of requests that ran",
                             .by = counted_by::model,
                             .buckets = {0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1,
                                         0.15, 0.2, 0.3, 0.5, 1, 2}}};
  histogram queue_seconds{*this,
                          {.name = "cohort_queue_seconds",
                           .help = "Time from arrival to the start of the last batch of an infer "
                                   "request that was answered with results",
                           .by = counted_by::model,
                           .buckets = part_seconds()}};
  histogram compute_seconds{*this,
                            {.name = "cohort_compute_seconds",
                             .help = "Time from the start to the end of a batch, copies included, "
                                     "the longest of an infer request",
                             .by = counted_by::model,
                             .buckets = part_seconds()}};
  gauge waiting{*this,
                {.name = "cohort_waiting_requests",
                 .help = "Requests waiting for a batch",
                 .by = counted_by::model}};
  gauge in_flight{*this,
                  {.name = "cohort_requests_in_flight",
                   .help = "Requests that are accepted and not answered yet",
                   .by = counted_by::model}};
  counter busy_seconds{*this,
                       {.name = "cohort_device_busy_seconds_total",
                        .help = "Device time of dispatched batches by their profile",
                        .by = counted_by::device}};
  counter pipeline_rows{*this,
                        {.name = "cohort_pipeline_rows_total",
                         .help = "Rows made, joined, split or held between stages of a pipeline",
                         .by = counted_by::pipeline,
                         .label = "event",
                         .values = {"new", "stretch", "split", "hold"}}};
  changing_gauge placed{
      *this,
      {.name = "cohort_placed_requests_per_second",
       .help = "Planned request rate of a model on a partition; 0 while it is not served there"}};
  changing_gauge latency_factor{
      *this,
      {.name = "cohort_latency_factor",
       .help = "Factor on the profiled time of a batch of one that decisions use"}};
  changing_gauge latency_batches{
      *this,
      {.name = "cohort_latency_batches",
       .help = "Batches measured since the last shift of a model's latencies"}};
  counter latency_shifts{*this,
                         {.name = "cohort_latency_shifts_total",
                          .help = "Shifts of a model's latencies to another level",
                          .by = counted_by::model}};
  changing_gauge device_factor{
      *this,
      {.name = "cohort_device_factor",
       .help = "Batch times on this device over those on the other devices"}};
  changing_gauge device_state{
      *this,
      {.name = "cohort_device_state",
       .help = "1 for the present state of a device, 0 for its other states"}};
  changing_gauge devices_advised{
      *this,
      {.name = "cohort_devices_advised",
       .help = "Fewest devices that would keep late or dropped requests below 1 % of the load"}};
  changing_gauge device_planned{
      *this,
      {.name = "cohort_device_planned",
       .help = "1 if plans use the device, 0 while a partition of it is out of service"}};
  counter device_changes{*this,
                         {.name = "cohort_device_changes_total",
                          .help = "Changes of a device into or out of quarantine",
                          .by = counted_by::device,
                          .label = "to",
                          .values = {"quarantined", "healthy"}}};
  counter hung_probes{*this,
                      {.name = "cohort_hung_probes_total",
                       .help = "Probes of a device out of service that hung themselves",
                       .by = counted_by::device}};
  counter suspensions{*this,
                      {.name = "cohort_model_suspensions_total",
                       .help = "Suspensions of a model whose requests made devices hang or fail",
                       .by = counted_by::model}};
  counter retries{*this,
                  {.name = "cohort_retried_requests_total",
                   .help = "Requests requeued after their batch failed or hung",
                   .by = counted_by::model}};
  counter stray_ends{*this,
                     {.name = "cohort_stray_ends_total",
                      .help = "Repeated ends of batches, requests and probes, which are ignored"}};
  changing_gauge wake_margin_seconds{
      *this,
      {.name = "cohort_wake_margin_seconds",
       .help = "Lead with which the scheduler's timers are set: nine in ten fire less late"}};
  changing_gauge setting_window{
      *this,
      {.name = "cohort_setting_window",
       .help = "1 for the batching window that adaptive uses, 0 for the others"}};
  changing_gauge setting_quantile{*this,
                                  {.name = "cohort_setting_quantile",
                                   .help = "Quantile of learned latencies that adaptive uses"}};
  counter tuning_rounds{*this,
                        {.name = "cohort_tuning_rounds_total",
                         .help = "Rounds of trials in the twin (shadow simulation), by result",
                         .by = counted_by::server,
                         .label = "result",
                         .values = {"changed", "kept", "too_few_requests", "no_answer"}}};
  counter tuning_cpu_seconds{
      *this, {.name = "cohort_tuning_cpu_seconds_total", .help = "CPU time of all trials"}};
  changing_gauge handover_seconds{*this,
                                  {.name = "cohort_handover_seconds",
                                   .help = "Recent mean time from arrival to the scheduler (in) "
                                           "and from a batch's end to the answer (back)"}};
  counter plans{*this,
                {.name = "cohort_plans_total",
                 .help = "Plans begun, and failed steps of plans, which are tried again",
                 .by = counted_by::server,
                 .label = "result",
                 .values = {"begun", "failed_step"}}};
  gauge models_loading{*this,
                       {.name = "cohort_models_loading", .help = "Models that are being loaded"}};
  gauge loads_abandoned{
      *this,
      {.name = "cohort_loads_abandoned",
       .help = "Loads and measurements of models that were abandoned and have not ended"}};
  counter load_timeouts{*this,
                        {.name = "cohort_load_timeouts_total",
                         .help = "Loads and measurements of models that took too long"}};
  text_counter answers{
      *this,
      {.name = "cohort_http_responses_total", .help = "HTTP answers by status", .label = "status"}};
  http_counters http{*this};
  std::optional<triton_metrics> triton{};  ///< Must be emplaced before models are added.

  /// Up to `most` models, and versions of them, at one time will be added and removed by
  /// `find_model` and `find_version`, and none by `add_model`.
  void expect_models(std::size_t most) {
    for (const counted_by by : {counted_by::model, counted_by::version}) expect_owners(by, most);
  }
  /// Like `find_owner`. @param name Not empty.
  [[nodiscard]] std::shared_ptr<const metric_owner> find_model(const std::string& name) {
    return find_owner(counted_by::model, name);
  }
  [[nodiscard]] std::shared_ptr<const metric_owner> find_version(const std::string& model,
                                                                 const std::string& version) {
    return find_owner(counted_by::version, model + '/' + version);
  }
  /// Adds a model. Model and device ids must be dense and added in order. The model is also its
  /// only version.
  void add_model(model_id id, const std::string& name, const std::string& version = "1") {
    add_owner(counted_by::model, id.index(), name);
    add_owner(counted_by::version, id.index(), name + '/' + version);
  }
  void add_device(device_id id) {
    add_owner(counted_by::device, id.index(), std::to_string(id.value()));
  }
  /// The model runs as a pipeline.
  void add_pipeline(model_id id, const std::string& name) {
    add_owner(counted_by::pipeline, id.index(), name);
  }

  void shed_for(model_id id, shed_reason why) {
    shed.add(1, id.index(), static_cast<std::size_t>(why));
  }
  void refused(model_id id, refusal why) {
    refusals.add(1, id.index(), static_cast<std::size_t>(why));
  }
  /// Counts a request that ended `latency` after its arrival, or that the loop did not take.
  void ended(model_id id, outcome how, duration latency) {
    if (how == outcome::refused) return refused(id, refusal::overloaded);
    requests.add(1, id.index(), static_cast<std::size_t>(how));
    if (how == outcome::completed || how == outcome::late) {
      request_seconds.observe(to_seconds(latency), id.index());
    }
  }
  void dispatched(const dispatch_event& e) {
    batch_size.observe(e.size, e.model.index());
    busy_seconds.add(to_seconds(e.work), e.device.index());
  }
  /// For a model with a pipeline.
  void happened(model_id id, row_event what) {
    pipeline_rows.add(1, id.index(), static_cast<std::size_t>(what));
  }
  void set_waiting(model_id id, double count) { waiting.set(count, id.index()); }
  /// Notes that the model is loaded on a partition, `percent` of a device, with a planned rate of
  /// `rate_rps` requests per second; 0 while it is not in service there. Any thread, at any time.
  void place(const std::string& model, device_id device, std::uint32_t partition,
             std::uint32_t percent, double rate_rps) {
    placed.set(place_labels(model, device, partition, percent), rate_rps);
  }
  /// Notes that it was unloaded there.
  void unplace(const std::string& model, device_id device, std::uint32_t partition,
               std::uint32_t percent) {
    placed.remove(place_labels(model, device, partition, percent));
  }
  /// Counts a plan that was begun, or a step of one that failed and is retried.
  void planned(bool failed) { plans.add(1, 0, failed ? 1 : 0); }
  void refused(http_bound full) { http.add(full); }
  /// HTTP answers by status, of every path.
  void answered(int status) { answers.add(std::to_string(status)); }

 private:
  /// Buckets for parts of a request's time: finer at the lower end than those of the whole.
  static std::vector<double> part_seconds() {
    return {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};
  }
  static metric_labels place_labels(const std::string& model, device_id device,
                                    std::uint32_t partition, std::uint32_t percent) {
    return {{"model", model},
            {"device", std::to_string(device.value())},
            {"partition", std::to_string(partition)},
            {"share_percent", std::to_string(percent)}};
  }
};

/// Counts batches as the engine sends them.
struct metrics_observer : null_observer {
  metrics* into = nullptr;
  void dispatched(const dispatch_event& e, time_point) noexcept { into->dispatched(e); }
  void retried(const request& r, time_point) noexcept { into->retries.add(1, r.model.index()); }
  void stray_end() const noexcept { into->stray_ends.add(1); }
};
static_assert(observer<metrics_observer>);

}  // namespace cohort::serve
