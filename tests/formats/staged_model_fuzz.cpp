// SPDX-License-Identifier: Apache-2.0
// Any text is a staged model whose profiles can be made, or one line of complaint.
#include <cohort/batching/pipeline.hpp>

#include <formats/staged_model_file.hpp>
#include <formats/text.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const formats::staged_model_spec m = formats::parse_staged_model("fuzz.json", text);
    if (m.stages.empty() || m.batch_max == 0 || m.buffer_sets == 0 || m.slo <= duration{0}) {
      std::abort();
    }
    const batching::stage_profile whole = m.profile();
    const batching::stage_profile step = m.step_profile();
    const auto steps = m.steps();
    if (whole.stages() != m.stages.size() || step.stages() != whole.stages()) std::abort();
    if (whole.batch_max() != m.batch_max || steps.size() != m.stages.size()) std::abort();
    if (whole.total(1) > m.slo) std::abort();
    for (std::uint32_t s = 0; s < whole.stages(); ++s) {
      for (std::uint32_t k = 0; k < whole.buckets(); ++k) {
        if (steps[s][k] == 0) std::abort();
        for (const std::uint32_t b : whole.sizes()) {
          if (step.time(s, b, k) <= duration{0} || whole.time(s, b, k) < step.time(s, b, k)) {
            std::abort();
          }
          if (!(whole.share(s, b, k) > 0 && whole.share(s, b, k) <= 1)) std::abort();
        }
      }
    }
    // What was accepted can be run: its pipeline takes a request to its end.
    struct {
      std::uint32_t ends = 0;
      std::uint32_t launched = 0;
      void launch(const batching::stage_launch& l) { launched = l.stage; }
      void end(const batching::staged_request&, outcome, time_point) { ++ends; }
      void move(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) {}
    } sink;
    batching::pipeline<> p{whole,
                           {.buffer_sets = m.buffer_sets, .window = m.window},
                           batching::plain_policy{m.batch_max}};
    const batching::staged_request one{.bucket = whole.buckets() - 1};
    p.on_arrival({&one, 1}, time_point{});
    if (p.next_wake() != never) p.advance(p.next_wake(), sink);
    p.advance(time_point{}, sink);
    for (std::uint32_t s = 0; s < whole.stages(); ++s) {
      p.on_complete(0, sink.launched, time_point{}, sink);
      p.advance(time_point{}, sink);
    }
    if (sink.ends != 1 || !p.is_idle()) std::abort();
  } catch (const formats::input_error& e) {
    if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
