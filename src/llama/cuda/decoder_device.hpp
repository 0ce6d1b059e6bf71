// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a decoder asks of the device it runs on.
#pragma once

#include <cohort/runtime/executor.hpp>

#include <concepts>
#include <cstddef>

#include "arguments.hpp"

namespace cohort::llama::device {

namespace requirement {
template <class D>
concept has_an_executor = requires(D& d) {
  typename D::stream;
  { d.executor() } -> std::same_as<typename D::executor_type&>;
} && runtime::executor<typename D::executor_type>;
template <class D>
concept copies_and_multiplies = requires(
    D& d, typename D::stream& s, const runtime::copy_request& c, const runtime::gemm_request& g) {
  d.copy(s, c);
  d.multiply(s, g);
};
}  // namespace requirement

/// An executor with the decoder's programs. Semantics:
/// * `run(s, t, a)`, `copy(s, c)` and `multiply(s, g)` enqueue work on s; matrices have elements of
/// type t.
/// * `multiplies_few_rows(t)`: whether it runs `product_arguments` of this type.
/// * `allocate_host(bytes)`: memory that copies to and from the device do not stage.
/// * `record(s, enqueue)` calls `enqueue()`, which asks work of s alone; that work runs at each
///   `replay` and not before, with the addresses it was given.
/// Thread safety: any thread; one stream by one thread at a time, one recording at a time. Models:
/// `cuda_device`, `emulated_device`.
template <class D>
concept decoder_device =
    requirement::has_an_executor<D> &&
    requires(D& d, std::size_t bytes, typename D::stream& s, runtime::data_type t,
             const embed_arguments& a, const norm_arguments& b, const rotate_arguments& c,
             const attend_arguments& e, const prefill_arguments& f, const swiglu_arguments& g,
             const choose_arguments& h, const product_arguments& i, const typename D::recording& r,
             void (*enqueue)()) {
      { d.allocate_host(bytes) } -> std::same_as<typename D::host_memory>;
      { d.allocate_host(bytes).data() } -> std::same_as<std::byte*>;
      d.run(s, t, a);
      d.run(s, t, b);
      d.run(s, t, c);
      d.run(s, t, e);
      d.run(s, t, f);
      d.run(s, t, g);
      d.run(s, t, h);
      d.run(s, t, i);
      { d.multiplies_few_rows(t) } -> std::same_as<bool>;
      { d.record(s, enqueue) } -> std::same_as<typename D::recording>;
      d.replay(s, r);
    } &&
    requirement::copies_and_multiplies<D>;

}  // namespace cohort::llama::device
