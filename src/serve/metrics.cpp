// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/metrics.hpp>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <cstddef>
#include <vector>

namespace cohort::serve {
namespace {

constexpr std::array outcomes{outcome::completed, outcome::late, outcome::dropped,
                              outcome::cancelled, outcome::failed};
constexpr std::array refusals{refusal::unknown_model, refusal::queue_full, refusal::too_big,
                              refusal::deadline_infeasible, refusal::draining};
constexpr std::array row_events{row_event::made, row_event::stretched, row_event::split,
                                row_event::held};
constexpr std::array row_event_names{"new", "stretch", "split", "hold"};

const prometheus::Histogram::BucketBoundaries batch_sizes{1,  2,  3,  4,  6,  8,  12,
                                                          16, 24, 32, 48, 64, 128};
const prometheus::Histogram::BucketBoundaries seconds{
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2};

struct model_metrics {
  std::array<prometheus::Counter*, outcomes.size()> ended;
  std::array<prometheus::Counter*, refusals.size()> refused;
  prometheus::Histogram* batch;
  prometheus::Histogram* latency;
  prometheus::Gauge* waiting;
  std::array<prometheus::Counter*, row_events.size()> rows;
};

}  // namespace

struct metrics::state {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& ended =
      prometheus::BuildCounter()
          .Name("cohort_requests_total")
          .Help("Accepted requests that ended, by outcome")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& refused = prometheus::BuildCounter()
                                                         .Name("cohort_refused_total")
                                                         .Help("Requests not accepted, by reason")
                                                         .Register(registry);
  prometheus::Family<prometheus::Histogram>& batch =
      prometheus::BuildHistogram()
          .Name("cohort_batch_size")
          .Help("Requests in a batch when it was sent")
          .Register(registry);
  prometheus::Family<prometheus::Histogram>& latency =
      prometheus::BuildHistogram()
          .Name("cohort_request_seconds")
          .Help("Arrival to end of requests that ran")
          .Register(registry);
  prometheus::Family<prometheus::Gauge>& waiting = prometheus::BuildGauge()
                                                       .Name("cohort_waiting_requests")
                                                       .Help("Requests that wait for a batch")
                                                       .Register(registry);
  prometheus::Family<prometheus::Counter>& busy =
      prometheus::BuildCounter()
          .Name("cohort_device_busy_seconds_total")
          .Help("Time that the batches sent to a device should take alone, by their profile")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& rows =
      prometheus::BuildCounter()
          .Name("cohort_pipeline_rows_total")
          .Help("Rows of pipelines that were made, joined, split or held between stages")
          .Register(registry);
  prometheus::Family<prometheus::Gauge>& placed =
      prometheus::BuildGauge()
          .Name("cohort_placed_requests_per_second")
          .Help("Models on partitions of devices, and the rate that the plan gives them there")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& plans =
      prometheus::BuildCounter()
          .Name("cohort_plans_total")
          .Help("Plans that were begun, and steps of plans that failed and were tried again")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& answers = prometheus::BuildCounter()
                                                         .Name("cohort_http_responses_total")
                                                         .Help("HTTP answers by status")
                                                         .Register(registry);
  std::vector<model_metrics> models;
  std::vector<prometheus::Counter*> devices;
};

metrics::metrics() : state_{std::make_unique<state>()} {}
metrics::~metrics() = default;

void metrics::add_model(model_id id, const std::string& name) {
  model_metrics m{};
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    m.ended[i] =
        &state_->ended.Add({{"model", name}, {"outcome", std::string{to_string(outcomes[i])}}});
  }
  for (std::size_t i = 0; i < refusals.size(); ++i) {
    m.refused[i] =
        &state_->refused.Add({{"model", name}, {"reason", std::string{to_string(refusals[i])}}});
  }
  m.batch = &state_->batch.Add({{"model", name}}, batch_sizes);
  m.latency = &state_->latency.Add({{"model", name}}, seconds);
  m.waiting = &state_->waiting.Add({{"model", name}});
  if (id.index() >= state_->models.size()) state_->models.resize(id.index() + 1);
  state_->models[id.index()] = m;
}

void metrics::add_device(device_id id) {
  if (id.index() >= state_->devices.size()) state_->devices.resize(id.index() + 1);
  state_->devices[id.index()] = &state_->busy.Add({{"device", std::to_string(id.value())}});
}
void metrics::add_pipeline(model_id id, const std::string& name) {
  model_metrics& m = state_->models[id.index()];
  for (std::size_t i = 0; i < row_events.size(); ++i) {
    m.rows[i] = &state_->rows.Add({{"model", name}, {"event", row_event_names[i]}});
  }
}

void metrics::refused(model_id id, refusal why) {
  state_->models[id.index()].refused[static_cast<std::size_t>(why)]->Increment();
}
void metrics::ended(model_id id, outcome how, duration latency) {
  const model_metrics& m = state_->models[id.index()];
  m.ended[static_cast<std::size_t>(how)]->Increment();
  if (how == outcome::completed || how == outcome::late) m.latency->Observe(to_seconds(latency));
}
void metrics::dispatched(const dispatch_event& e) {
  state_->models[e.model.index()].batch->Observe(e.size);
  state_->devices[e.device.index()]->Increment(to_seconds(e.work));
}
void metrics::happened(model_id id, row_event what) {
  state_->models[id.index()].rows[static_cast<std::size_t>(what)]->Increment();
}
void metrics::set_waiting(model_id id, double requests) {
  state_->models[id.index()].waiting->Set(requests);
}
namespace {
prometheus::Labels labels_of(const std::string& model, device_id device, std::uint32_t partition,
                             std::uint32_t percent) {
  return {{"model", model},
          {"device", std::to_string(device.value())},
          {"partition", std::to_string(partition)},
          {"share_percent", std::to_string(percent)}};
}
}  // namespace

void metrics::place(const std::string& model, device_id device, std::uint32_t partition,
                    std::uint32_t percent, double rate_rps) {
  state_->placed.Add(labels_of(model, device, partition, percent)).Set(rate_rps);
}
void metrics::unplace(const std::string& model, device_id device, std::uint32_t partition,
                      std::uint32_t percent) {
  state_->placed.Remove(&state_->placed.Add(labels_of(model, device, partition, percent)));
}
void metrics::planned(bool failed) {
  state_->plans.Add({{"result", failed ? "failed_step" : "begun"}}).Increment();
}
void metrics::answered(int status) {
  state_->answers.Add({{"status", std::to_string(status)}}).Increment();
}

std::string metrics::text() const {
  return prometheus::TextSerializer{}.Serialize(state_->registry.Collect());
}

}  // namespace cohort::serve
