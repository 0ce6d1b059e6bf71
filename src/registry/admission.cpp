// SPDX-License-Identifier: Apache-2.0
#include "admission.hpp"

#include <cohort/sim/llm/service_simulation.hpp>

#include <cstdint>
#include <limits>

#include "name_table.hpp"

namespace cohort::registry {
namespace {

using requests = std::vector<sim::decode_request>;

sim::service_result by_slo(const requests& in, const sim::service_options& o, kv::slo_options how) {
  how.between_tokens = o.between_tokens;
  sim::service_options wide = o;
  // The policy waits for slots.
  wide.max_prepared = std::numeric_limits<std::uint32_t>::max();
  const kv::slo_admission admission{how, sim::prefill_latency_of(o)};
  return sim::service_simulation{in, wide, admission}.run();
}

/// `make(requests, options)` returns the result.
constexpr name_table admissions{
    row{"fifo", "start prompts at once",
        [](const requests& in, const sim::service_options& o) {
          return sim::service_simulation{in, o, kv::start_at_once{}}.run();
        }},
    row{"slo", "start by deadline when slots are free; drop what would be late",
        [](const requests& in, const sim::service_options& o) { return by_slo(in, o, {}); }},
    row{"promise", "as slo, but refuse on arrival; later requests delay no accepted one",
        [](const requests& in, const sim::service_options& o) {
          return by_slo(in, o, {.promise = true});
        }},
    row{"slo-late", "as slo, but serve last what would be late",
        [](const requests& in, const sim::service_options& o) {
          return by_slo(in, o, {.drop_late = false});
        }},
    row{"deferred", "as slo, but start a group when one more prompt would be late",
        [](const requests& in, const sim::service_options& o) {
          return by_slo(in, o, {.defer = true});
        }}};

}  // namespace

const name_list& admission_names() {
  static const name_list names = admissions.list();
  return names;
}

sim::service_result serve(const choice& admission, const requests& in,
                          const sim::service_options& o) {
  return admissions.visit(admission.row, [&](const auto& r) { return r.make(in, o); });
}

}  // namespace cohort::registry
