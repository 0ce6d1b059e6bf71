// SPDX-License-Identifier: Apache-2.0
#include "generator.hpp"

#include "basic_generator.hpp"
#include "host_backend.hpp"

namespace cohort::llm {

struct generator::parts {
  parts(const llama& model, const generator_options& o) : decoder{model, o}, loop{decoder, o} {}
  host_backend decoder;
  basic_generator<host_backend> loop;
};

generator::generator(const llama& model, const generator_options& o)
    : parts_{std::make_unique<parts>(model, o)} {}
generator::~generator() = default;

std::optional<refusal> generator::submit(generation& g, time_point now) {
  return parts_->loop.submit(g, now);
}
void generator::cancel(generation& g) { parts_->loop.cancel(g); }
bool generator::turn(const std::function<time_point()>& clock) { return parts_->loop.turn(clock); }
const generator::scheduler& generator::state() const noexcept { return parts_->loop.state(); }
std::uint64_t generator::prefix_hits() const noexcept { return parts_->loop.prefix_hits(); }
std::uint64_t generator::prefilled_tokens() const noexcept {
  return parts_->loop.prefilled_tokens();
}
std::uint64_t generator::column_bytes() const noexcept { return parts_->decoder.column_bytes(); }

}  // namespace cohort::llm
