// SPDX-License-Identifier: Apache-2.0
#include "sampler.hpp"

#include <cohort/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

namespace cohort::llama {
namespace {

constexpr std::uint64_t mix(std::uint64_t z) noexcept {
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31U);
}

/// Bytes at the end of `text` that begin a UTF-8 character without ending it.
std::size_t unfinished(std::string_view text) noexcept {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xC0U) == 0x80U) continue;
    const std::size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

/// The fewest most likely tokens that reach top_p, and the sum of their weights.
struct nucleus {
  std::ptrdiff_t count;
  double total;
};

/// Sorts no more of `order` than it takes. A sum depends on its order in the last bits, and the one
/// that counts is of all weights, the largest first: if that could decide, there is no answer.
/// @param roughly The sum of all weights in some order.  @param weight Of a place in `order`.
template <class Before, class Weight>
std::optional<nucleus> find_nucleus(std::vector<kv::token_id>& order, double top_p, double roughly,
                                    Before before, Weight weight) {
  const auto n = static_cast<std::ptrdiff_t>(order.size());
  // Two sums of n terms above 0 are no further from each other than 2 n half units in the last
  // place, and a little.
  const double error = roughly * static_cast<double>(n) * 0x1.0p-50;
  const double least = top_p * (roughly - error);
  const double most = top_p * (roughly + error);
  if (!(error < roughly)) return {};  // Not finite.
  double sum = 0;
  constexpr std::ptrdiff_t first = 256;
  for (std::ptrdiff_t done = 0, end = 0; done < n; done = end) {
    end = std::min(n, std::max(first, 4 * done));
    const auto at = [&](std::ptrdiff_t i) { return order.begin() + i; };
    if (end < n) std::nth_element(at(done), at(end), order.end(), before);
    std::sort(at(done), at(end), before);
    for (std::ptrdiff_t i = done; i < end; ++i) {
      sum += weight(i);
      if (sum < least) continue;
      if (sum < most) return {};
      return nucleus{i + 1, sum};
    }
  }
  return {};
}

}  // namespace

void sampling::check() const {
  expects(temperature >= 0 && temperature <= 100, "temperature must be in 0 to 100");
  expects(top_p > 0 && top_p <= 1, "top_p must be above 0 and at most 1");
  expects(std::abs(presence_penalty) <= 2, "presence_penalty must be in -2 to 2");
  expects(std::abs(frequency_penalty) <= 2, "frequency_penalty must be in -2 to 2");
  expects(logprobs <= 100, "logprobs must be at most 100");
}

bool is_distribution(std::span<const float> logits) noexcept {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  bool is_possible = false;
  for (const float x : logits) {
    if (!(x < infinity)) return false;  // NaN, too.
    is_possible = is_possible || x > -infinity;
  }
  return is_possible;
}

double keyed_uniform(std::uint64_t seed, std::uint64_t index) noexcept {
  return static_cast<double>(mix(mix(seed) ^ mix(~index)) >> 11U) * 0x1.0p-53;
}

sampled sampler::sample(std::span<const float> logits, const sampling& how, std::uint64_t index,
                        std::span<const kv::token_id> produced) {
  const auto n = static_cast<std::ptrdiff_t>(logits.size());
  adjusted_.assign(logits.begin(), logits.end());
  if (how.presence_penalty != 0 || how.frequency_penalty != 0) {
    seen_.assign(logits.size(), false);
    for (const kv::token_id t : produced) {
      const auto i = static_cast<std::size_t>(t);
      adjusted_[i] -= how.frequency_penalty;
      if (!seen_[i]) adjusted_[i] -= how.presence_penalty;
      seen_[i] = true;
    }
  }
  const auto by = [&](const auto& values) {
    return [&values](kv::token_id a, kv::token_id b) {
      const float x = values[static_cast<std::size_t>(a)];
      const float y = values[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    };
  };
  const auto fill_order = [&] {
    order_.resize(logits.size());
    std::iota(order_.begin(), order_.end(), 0);
  };

  kv::token_id chosen = 0;
  if (how.temperature == 0) {
    chosen = static_cast<kv::token_id>(std::ranges::max_element(adjusted_) - adjusted_.begin());
  } else {
    fill_order();
    std::ptrdiff_t kept = how.top_k == 0 ? n : std::min<std::ptrdiff_t>(n, how.top_k);
    const float most = *std::ranges::max_element(adjusted_);
    const auto weight = [&](std::ptrdiff_t i) {
      const float x = adjusted_[static_cast<std::size_t>(order_[static_cast<std::size_t>(i)])];
      return std::exp(static_cast<double>(x - most) / static_cast<double>(how.temperature));
    };
    const auto add = [&](std::ptrdiff_t count) {  // In the order of `order_`.
      double sum = 0;
      for (std::ptrdiff_t i = 0; i < count; ++i) sum += weight(i);
      return sum;
    };
    double total = 0;
    std::optional<nucleus> part;
    if (kept == n && how.top_p < 1) {
      part = find_nucleus(order_, static_cast<double>(how.top_p), add(n), by(adjusted_), weight);
    }
    if (part) {
      kept = part->count;
      total = part->total;
    } else {
      if (kept < n || how.top_p < 1) {
        std::partial_sort(order_.begin(), order_.begin() + kept, order_.end(), by(adjusted_));
      }
      total = add(kept);
      if (how.top_p < 1) {
        double sum = 0;
        for (std::ptrdiff_t i = 0; i < kept; ++i) {
          sum += weight(i);
          if (sum < static_cast<double>(how.top_p) * total) continue;
          kept = i + 1;
          total = sum;
        }
      }
    }
    double left = keyed_uniform(how.seed, index) * total;
    std::ptrdiff_t at = 0;
    for (; at + 1 < kept; ++at) {
      left -= weight(at);
      if (left < 0) break;
    }
    chosen = order_[static_cast<std::size_t>(at)];
  }

  // Log-probabilities are of the model's own distribution.
  const float most = *std::ranges::max_element(logits);
  double total = 0;
  for (const float x : logits) total += std::exp(static_cast<double>(x - most));
  const auto logprob = [&](kv::token_id t) {
    return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(t)] - most) -
                              std::log(total));
  };
  sampled out{.chosen = {chosen, logprob(chosen)}, .top = {}};
  if (how.logprobs > 0) {
    fill_order();
    const auto count = std::min<std::ptrdiff_t>(n, how.logprobs);
    std::partial_sort(order_.begin(), order_.begin() + count, order_.end(), by(logits));
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const kv::token_id t = order_[static_cast<std::size_t>(i)];
      out.top.push_back({t, logprob(t)});
    }
  }
  return out;
}

std::string stop_matcher::push(std::string_view bytes) {
  if (stopped_) return {};
  held_ += bytes;
  std::size_t begin = std::string::npos;
  std::size_t end = std::string::npos;
  for (const std::string& s : stops_) {
    const std::size_t at = s.empty() ? std::string::npos : held_.find(s);
    if (at == std::string::npos) continue;
    if (at + s.size() < end || (at + s.size() == end && at < begin)) {
      begin = at;
      end = at + s.size();
    }
  }
  if (begin != std::string::npos) {
    stopped_ = true;
    std::string out = held_.substr(0, begin);
    held_.clear();
    return out;
  }
  std::size_t keep = unfinished(held_);
  for (const std::string& s : stops_) {
    for (std::size_t n = std::min(held_.size(), s.empty() ? 0 : s.size() - 1); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, s, 0, n) == 0) keep = n;
    }
  }
  // A cut in front of a stop's beginning may itself fall into a character.
  keep += unfinished(std::string_view{held_}.substr(0, held_.size() - keep));
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string stop_matcher::finish() {
  std::string out;
  out.swap(held_);
  return out;
}

}  // namespace cohort::llama
