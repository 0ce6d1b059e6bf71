// SPDX-License-Identifier: Apache-2.0
#include "generator.hpp"

#include "basic_generator.hpp"
#include "host_backend.hpp"

namespace cohort::llama {

struct generator::parts {
  parts(const llama& model, const generator_options& o) : decoder{model, o}, loop{decoder, o} {}
  host_backend decoder;
  basic_generator<host_backend> loop;
};

generator::generator(const llama& model, const generator_options& o)
    : parts_{std::make_unique<parts>(model, o)} {}
generator::~generator() = default;

text_generator& generator::loop() const noexcept { return parts_->loop; }

}  // namespace cohort::llama
