// SPDX-License-Identifier: Apache-2.0
// Question: how much could any policy win over zero-batch on affine stages with every batch size
// measured? Two stages of (alpha b + beta) / 2, batches to 32, Poisson arrivals, one item at a
// time: a semi-Markov decision process, solved by relative value iteration. When the device is
// free, any number of those who wait may run stage 1 and join the row that stands before stage 2,
// or any number of that row may run stage 2. That holds every entry, stretch and split there is.
// affine_optimum [--quick] prints a table.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t batch_max = 32;
constexpr std::size_t most_waiting = 160;  // Beyond, arrivals are lost: rare at these loads.

class process {
 public:
  process(double alpha, double beta, double rate) : rate_{rate} {
    for (std::size_t b = 1; b <= batch_max; ++b) {
      time_[b] = (alpha * static_cast<double>(b) + beta) / 2;
      const double mean = rate * time_[b];
      double p = std::exp(-mean);
      double left = 1;
      // Until what is left is nothing; the last holds the tail.
      for (std::size_t k = 0; k <= most_waiting && left > 1e-9; ++k) {
        come_[b].push_back(p);
        left -= p;
        p *= mean / static_cast<double>(k + 1);
      }
      come_[b].back() += std::max(0.0, left);
    }
  }

  /// Mean latency of the best policy, or of zero-batch.
  [[nodiscard]] double mean_latency(bool zero_batch, double precision) {
    std::vector<double> h(states, 0);
    std::vector<double> next(states);
    std::array<std::vector<double>, batch_max + 1> expected;
    for (auto& e : expected) e.resize(states);
    // Schweitzer's transformation: all actions last as long as the shortest.
    const double step = std::min(0.9 * time_[1], 0.9 / rate_);
    for (;;) {
      for (std::size_t b = 1; b <= batch_max; ++b) expect(h, b, expected[b]);
      double least = HUGE_VAL;
      double most = -HUGE_VAL;
      for (std::size_t n = 0; n <= batch_max; ++n) {
        for (std::size_t w = 0; w <= most_waiting; ++w) {
          const std::size_t s = index(n, w);
          double best = HUGE_VAL;
          const auto consider = [&](double cost, double time, double then) {
            best = std::min(best, step * cost / time + step / time * (then - h[s]));
          };
          const auto there = static_cast<double>(n + w);
          if (n + w == 0) consider(0, 1 / rate_, h[index(0, 1)]);
          for (std::size_t a = zero_batch ? n : 1; a <= n && n > 0; ++a) {
            consider((there + rate_ * time_[a] / 2) * time_[a], time_[a],
                     expected[a][index(n - a, w)]);
          }
          const std::size_t room = std::min(batch_max - n, w);
          for (std::size_t b = zero_batch ? room : 1;
               b <= room && room > 0 && (!zero_batch || n == 0); ++b) {
            consider((there + rate_ * time_[b] / 2) * time_[b], time_[b],
                     expected[b][index(n + b, w - b)]);
          }
          next[s] = best;
          least = std::min(least, best);
          most = std::max(most, best);
        }
      }
      const double offset = next[0];
      for (std::size_t s = 0; s < states; ++s) h[s] += next[s] - offset;
      // Both bound the cost rate; the mean latency is that over the rate.
      if (most - least < precision * least) return (most + least) / 2 / step / rate_;
    }
  }

 private:
  static constexpr std::size_t states = (batch_max + 1) * (most_waiting + 1);
  static std::size_t index(std::size_t n, std::size_t w) { return n * (most_waiting + 1) + w; }

  /// What a state is worth after as long as b requests take.
  void expect(const std::vector<double>& h, std::size_t b, std::vector<double>& into) const {
    for (std::size_t n = 0; n <= batch_max; ++n) {
      for (std::size_t w = 0; w <= most_waiting; ++w) {
        double sum = 0;
        for (std::size_t k = 0; k < come_[b].size(); ++k) {
          sum += come_[b][k] * h[index(n, std::min(most_waiting, w + k))];
        }
        into[index(n, w)] = sum;
      }
    }
  }

  double rate_;
  std::array<double, batch_max + 1> time_{};
  std::array<std::vector<double>, batch_max + 1> come_;
};

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view{argv[1]} == "--quick";
  fmt::print("beta/alpha  load  zero-batch  best  best over zero-batch\n");
  for (const double beta : {0.5, 2.0, 8.0, 40.0}) {
    for (const double load : {0.3, 0.6, 0.9}) {
      process p{1, beta, load * batch_max / (batch_max + beta)};
      const double precision = quick ? 0.1 : 1e-4;
      const double zero = p.mean_latency(true, precision);
      const double best = p.mean_latency(false, precision);
      fmt::print("{:>10}  {:>4}  {:>10.3f}  {:>7.3f}  {:>7.4f}\n", beta, load, zero, best,
                 best / zero);
      std::fflush(stdout);
      if (quick) return 0;
    }
  }
  return 0;
}
