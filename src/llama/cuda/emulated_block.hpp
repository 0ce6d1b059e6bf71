// SPDX-License-Identifier: Apache-2.0
/// @file
/// A block of GPU threads on the host, for tests: threads run in a random order within each phase,
/// and what a GPU would leave to chance is an error.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "block.hpp"

namespace cohort::llama::device {

/// Thrown when a program reads or writes shared memory that another thread wrote or read since the
/// last barrier, reads what nobody wrote, or leaves its memory.
struct emulation_error : std::logic_error {
  using std::logic_error::logic_error;
};

class emulated_block {
 public:
  struct grid_size {
    unsigned x = 1, y = 1, z = 1;
  };

  emulated_block(unsigned threads, unsigned shared_count, std::uint32_t seed)
      : order_(threads), cells_(shared_count), random_{seed * 2654435761U + 1} {
    for (unsigned t = 0; t < threads; ++t) order_[t] = t;
  }
  /// Begins at a place of the grid, with nothing in shared memory.
  void begin(unsigned x, unsigned y, unsigned z) {
    x_ = x;
    y_ = y;
    z_ = z;
    for (cell& c : cells_) c = {};
    epoch_ = 1;
    for (std::size_t i = order_.size(); i-- > 1;) {
      random_ = random_ * 1664525U + 1013904223U;
      std::swap(order_[i], order_[(random_ >> 8U) % (i + 1)]);
    }
  }

  template <class T, unsigned N>
  struct registers {
    explicit registers(emulated_block& b)
        : v(std::size_t{b.threads()} * N,
            std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN() : T{}) {}
    T& at(unsigned thread, unsigned i) {
      if (i >= N) throw emulation_error{"an index beyond the registers"};
      return v[std::size_t{thread} * N + i];
    }
    std::vector<T> v;
  };
  class shared_floats {
   public:
    shared_floats(emulated_block& b, unsigned offset, unsigned count)
        : block_{&b}, offset_{offset}, count_{count} {}
    [[nodiscard]] float get(unsigned i) const { return block_->read(place(i)); }
    void set(unsigned i, float x) { block_->write(place(i), x); }
    [[nodiscard]] pack<float> get4(unsigned i) const {
      if ((offset_ + i) % 4 != 0) throw emulation_error{"shared memory: not aligned to four"};
      return {{get(i), get(i + 1), get(i + 2), get(i + 3)}};
    }

   private:
    [[nodiscard]] unsigned place(unsigned i) const {
      if (i >= count_) throw emulation_error{"shared memory: an index beyond what was asked"};
      return offset_ + i;
    }
    emulated_block* block_;
    unsigned offset_, count_;
  };

  [[nodiscard]] unsigned x() const noexcept { return x_; }
  [[nodiscard]] unsigned y() const noexcept { return y_; }
  [[nodiscard]] unsigned z() const noexcept { return z_; }
  [[nodiscard]] unsigned threads() const noexcept { return static_cast<unsigned>(order_.size()); }

  template <class F>
  void each(F f) {
    for (const unsigned t : order_) {
      thread_ = t;
      f(t);
    }
  }
  void barrier() noexcept { ++epoch_; }
  shared_floats shared(unsigned offset, unsigned count) {
    if (offset + count > cells_.size()) throw emulation_error{"shared memory: more than launched"};
    return {*this, offset, count};
  }
  words stream(const void* from, bool wanted) const noexcept {
    words to{};
    if (wanted) std::memcpy(&to, from, sizeof to);
    return to;
  }
  words load(const void* from, bool wanted) const noexcept { return stream(from, wanted); }
  void await_earlier() noexcept {}
  template <class T, class Sum, class W, class X>
  void multiply_tile(Sum& sum, unsigned at, W& w, unsigned w_at, X& x, unsigned x_at) {
    const auto element = [](const words& from, unsigned i) {
      T to{};
      std::memcpy(&to, reinterpret_cast<const std::byte*>(&from) + i * sizeof(T), sizeof to);
      return widen(to);
    };
    for (unsigned warp = 0; warp < threads(); warp += 32) {
      for (unsigned row = 0; row < 16; ++row) {
        for (unsigned column = 0; column < 8; ++column) {
          float s = 0;
          for (unsigned k = 0; k < 32; ++k) {
            s += element(w.at(warp + row % 8 * 4 + k / 8, w_at + row / 8), k % 8) *
                 element(x.at(warp + column * 4 + k / 8, x_at), k % 8);
          }
          sum.at(warp + row % 8 * 4 + column / 2, at + row / 8 * 2 + column % 2) += s;
        }
      }
    }
  }
  template <class R>
  void sum_over(R& r, unsigned i, unsigned width) {
    over(r, i, width, [](float a, float b) { return a + b; });
  }
  template <class R>
  void max_over(R& r, unsigned i, unsigned width) {
    over(r, i, width, [](float a, float b) { return std::fmax(a, b); });
  }

 private:
  static constexpr unsigned nobody = ~0U;
  static constexpr unsigned several = nobody - 1;
  struct cell {
    float value = 0;
    unsigned writer = nobody, reader = nobody;
    std::uint64_t written = 0, was_read = 0;  // Epochs; 0: never.
  };

  [[nodiscard]] float read(unsigned at) {
    cell& c = cells_[at];
    if (c.written == 0) throw emulation_error{"shared memory: read before it was written"};
    if (c.written == epoch_ && c.writer != thread_) {
      throw emulation_error{"shared memory: read without a barrier after another thread's write"};
    }
    c.reader = c.was_read == epoch_ && c.reader != thread_ ? several : thread_;
    c.was_read = epoch_;
    return c.value;
  }
  void write(unsigned at, float x) {
    cell& c = cells_[at];
    if ((c.written == epoch_ && c.writer != thread_) ||
        (c.was_read == epoch_ && c.reader != thread_)) {
      throw emulation_error{"shared memory: written without a barrier after another thread's use"};
    }
    c.value = x;
    c.writer = thread_;
    c.written = epoch_;
  }
  /// The butterfly of the GPU: the same additions in the same order.
  template <class R, class F>
  void over(R& r, unsigned i, unsigned width, F f) {
    if (width == 0 || width > 32 || (width & (width - 1)) != 0) {
      throw emulation_error{"lanes: the width must be a power of two up to 32"};
    }
    std::vector<float> old(threads());
    for (unsigned d = width / 2; d > 0; d /= 2) {
      for (unsigned t = 0; t < threads(); ++t) old[t] = r.at(t, i);
      for (unsigned t = 0; t < threads(); ++t) r.at(t, i) = f(old[t], old[t ^ d]);
    }
  }

  std::vector<unsigned> order_;
  std::vector<cell> cells_;
  std::uint32_t random_;
  std::uint64_t epoch_ = 1;
  unsigned thread_ = 0;
  unsigned x_ = 0, y_ = 0, z_ = 0;
};

/// Runs programs block by block, as a kernel launch runs them all at once.
struct emulated_launcher {
  std::uint32_t seed = 1;

  template <class Program, class Args>
  void operator()(unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared,
                  const Args& args) const {
    emulated_block b{threads, shared, seed};
    for (unsigned k = 0; k < z; ++k) {
      for (unsigned j = 0; j < y; ++j) {
        for (unsigned i = 0; i < x; ++i) {
          b.begin(i, j, k);
          Program::run(b, args);
        }
      }
    }
  }
};

}  // namespace cohort::llama::device
