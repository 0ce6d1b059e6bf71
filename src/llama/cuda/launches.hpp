// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which program computes what, over which grid: the same for a GPU and for its emulation. C++17.
#pragma once

#include "attend_programs.hpp"
#include "prefill_program.hpp"
#include "product_program.hpp"
#include "row_programs.hpp"

namespace cohort::llama::device {

/// Calls launch.template operator()<Program>(x, y, z, threads, shared_floats, arguments).
template <class T, class Launch>
void enqueue_as(const Launch& launch, const embed_arguments& a) {
  launch.template operator()<embed_program<T>>(a.count, 1, 1, threads_of_row(a.width), 0, a);
}
template <class T, class Launch>
void enqueue_as(const Launch& launch, const norm_arguments& a) {
  using program = norm_program<T>;
  launch.template operator()<program>(a.count, 1, 1, threads_of_row(a.width),
                                      program::shared_floats, a);
}
template <class T, class Launch>
void enqueue_as(const Launch& launch, const rotate_arguments& a) {
  using program = rotate_program<T>;
  launch.template operator()<program>(a.count, a.heads + 2 * a.kv_heads, 1, head_threads,
                                      program::shared_floats, a);
}
template <class T, class Launch>
void enqueue_as(const Launch& launch, const swiglu_arguments& a) {
  using program = swiglu_program<T>;
  launch.template operator()<program>(a.count, (a.width + program::values - 1) / program::values, 1,
                                      row_threads, 0, a);
}
template <class T, class Launch>
void enqueue_as(const Launch& launch, const choose_arguments& a) {
  using program = choose_program<T>;
  launch.template operator()<program>(a.count, 1, 1, argmax_threads, program::shared_floats, a);
}

template <class T, unsigned Tiles, class Launch>
void multiply_with(const Launch& launch, const product_arguments& a) {
  const auto with = [&](auto program) {
    using type = decltype(program);
    launch.template operator()<type>((a.outputs + 15) / 16, 1, 1, type::threads,
                                     type::shared_floats, a);
  };
  if (a.count <= 8) return with(product_program<T, Tiles, 1>{});
  with(product_program<T, Tiles, 2>{});
}
template <class T, class Launch>
void enqueue_as(const Launch& launch, const product_arguments& a) {
  if constexpr (sizeof(T) == 2) {
    if (a.gated) return multiply_with<T, 2>(launch, a);
    multiply_with<T, 1>(launch, a);
  }
}

template <class T, unsigned Heads, unsigned Packs, class Launch>
void attend_with(const Launch& launch, const attend_arguments& a) {
  using program = attend_program<T, Heads, Packs>;
  const unsigned splits = (a.heads / a.kv_heads + Heads - 1) / Heads;
  launch.template operator()<program>(a.kv_heads * splits, a.parts, a.count, program::threads,
                                      program::shared_floats, a);
}
template <class T, unsigned Packs, class Launch>
void attend_with(const Launch& launch, const attend_arguments& a) {
  const unsigned group = a.heads / a.kv_heads;
  if (group == 1) return attend_with<T, 1, Packs>(launch, a);
  if (group == 2) return attend_with<T, 2, Packs>(launch, a);
  attend_with<T, 4, Packs>(launch, a);  // More would not fit into registers.
}
template <class T, class Launch>
void enqueue_as(const Launch& launch, const attend_arguments& a) {
  if (a.head_size / pack<T>::size <= 32) {
    attend_with<T, 1>(launch, a);
  } else if constexpr (most_head_size / pack<T>::size > 32) {
    attend_with<T, 2>(launch, a);
  }
  if (a.parts > 1) {
    launch.template operator()<combine_program<T>>(a.count, a.heads, 1, head_threads, 0, a);
  }
}

template <class T, unsigned Wide, class Launch>
void prefill_with(const Launch& launch, const prefill_arguments& a) {
  using program = prefill_program<T, Wide>;
  launch.template operator()<program>(a.tile_count, a.heads, 1, program::threads,
                                      program::shared_floats, a);
}
template <class T, class Launch>
void enqueue_as(const Launch& launch, const prefill_arguments& a) {
  if (a.head_size <= 64) {
    prefill_with<T, 1>(launch, a);
  } else if (a.head_size <= 128) {
    prefill_with<T, 2>(launch, a);
  } else {
    prefill_with<T, 4>(launch, a);
  }
}

/// Of elements: 0 f32, 1 f16, 2 bf16, in the order of `runtime::data_type`.
template <class Launch, class Args>
void enqueue(const Launch& launch, int element, const Args& a) {
  if (element == 0) return enqueue_as<float>(launch, a);
  if (element == 1) return enqueue_as<f16>(launch, a);
  enqueue_as<bf16>(launch, a);
}

}  // namespace cohort::llama::device
