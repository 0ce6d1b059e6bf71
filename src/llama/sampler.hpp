// SPDX-License-Identifier: Apache-2.0
/// @file
/// From logits to a token, the same for one seed and token index whatever the schedule.
#pragma once

#include <cohort/kv/batch/prepared.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::llama {

/// How tokens are chosen.
struct sampling {
  float temperature = 0;    ///< 0: the most likely one. At least 0.
  std::uint32_t top_k = 0;  ///< Only the k most likely; 0: all.
  float top_p = 1;          ///< Only the fewest whose probabilities reach this; above 0, at most 1.
  float presence_penalty = 0;   ///< Taken from the logits of tokens that were produced.
  float frequency_penalty = 0;  ///< The same, once for each time.
  std::uint64_t seed = 0;       ///< Of the draws, together with the token's index.
  std::uint32_t logprobs = 0;   ///< How many of the most likely to report.

  /// @throws config_error If a field is outside its range.
  void check() const;
};

/// A token with the logarithm of its probability before temperature and penalties.
struct scored_token {
  kv::token_id token = 0;
  float logprob = 0;
};

struct sampled {
  scored_token chosen;
  std::vector<scored_token> top;  ///< `logprobs` of them, most likely first.
};

/// Whether logits say how likely tokens are: none is NaN or +∞, and some token is possible. Those
/// of a model that overflowed are not.
[[nodiscard]] bool is_distribution(std::span<const float> logits) noexcept;

/// Chooses tokens. Equal logits are ordered by token. Thread safety: none; it keeps buffers.
class sampler {
 public:
  /// @param logits A distribution.  @param index Number of tokens produced before this one.  @param
  /// produced These.
  sampled sample(std::span<const float> logits, const sampling& how, std::uint64_t index,
                 std::span<const kv::token_id> produced);

 private:
  std::vector<float> adjusted_;
  std::vector<bool> seen_;
  std::vector<kv::token_id> order_;
};

/// Uniform in [0, 1), a function of seed and index alone.
[[nodiscard]] double keyed_uniform(std::uint64_t seed, std::uint64_t index) noexcept;

/// Gives out text up to the stop string that ends first (of those that end together, the longest),
/// also one that spans tokens: what could become one is held back, and so is an unfinished UTF-8
/// character. However the text is cut into tokens, what is given out in all is the same.
class stop_matcher {
 public:
  explicit stop_matcher(std::vector<std::string> stops = {}) : stops_{std::move(stops)} {}

  /// Adds the bytes of a token. @returns What is now certain.
  std::string push(std::string_view bytes);
  /// What was held back, when no more comes. Empty after a stop.
  std::string finish();
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace cohort::llama
