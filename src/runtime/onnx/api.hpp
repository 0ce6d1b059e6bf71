// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of ONNX Runtime's C interface that cohort uses: its function table only grows at the
/// end, so a function's position suffices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cohort::runtime::onnx::detail {

// Opaque: created and released by ONNX Runtime.
struct ort_status;
struct ort_env;
struct ort_session;
struct ort_session_options;
struct ort_run_options;
struct ort_value;
struct ort_type_info;
struct ort_tensor_info;
struct ort_memory_info;
struct ort_allocator;
struct ort_cuda_options;

/// The first table version with all functions below except those of CUDA and `string_room`: ONNX
/// Runtime 1.5.
inline constexpr std::uint32_t least_api_version = 5;
/// The first version that also has those of CUDA.
inline constexpr std::uint32_t cuda_api_version = 11;
/// The first version with `string_room`.
inline constexpr std::uint32_t strings_api_version = 15;

// Values of its enumerations.
inline constexpr int fatal_log = 4;         // Minimum severity that is logged.
inline constexpr int in_sequence = 0;       // Execution mode.
inline constexpr int device_allocator = 0;  // Memory not in an arena.
inline constexpr int default_memory = 0;
inline constexpr int kind_tensor = 1;  // Of a value; session.cpp has the other kinds' names.

template <std::size_t N>
using not_used = std::array<void (*)(), N>;

/// The first part of the table. All functions except releases return null or a status that the
/// caller releases.
struct ort_api {
  not_used<2> to_2;
  const char* (*error_message)(const ort_status*);
  ort_status* (*create_env)(int severity, const char* log_id, ort_env**);
  not_used<3> to_7;
  ort_status* (*create_session)(const ort_env*, const char* path, const ort_session_options*,
                                ort_session**);
  ort_status* (*create_session_from_bytes)(const ort_env*, const void*, std::size_t,
                                           const ort_session_options*, ort_session**);
  ort_status* (*run)(ort_session*, const ort_run_options*, const char* const* input_names,
                     const ort_value* const* inputs, std::size_t, const char* const* output_names,
                     std::size_t, ort_value** outputs);
  ort_status* (*create_session_options)(ort_session_options**);
  not_used<2> to_13;
  ort_status* (*set_execution_mode)(ort_session_options*, int);
  not_used<3> to_17;
  ort_status* (*disable_memory_plans)(ort_session_options*);
  not_used<4> to_22;
  ort_status* (*set_log_severity)(ort_session_options*, int);
  not_used<1> to_24;
  ort_status* (*set_intra_op_threads)(ort_session_options*, int);
  ort_status* (*set_inter_op_threads)(ort_session_options*, int);
  not_used<4> to_30;
  ort_status* (*input_count)(const ort_session*, std::size_t*);
  ort_status* (*output_count)(const ort_session*, std::size_t*);
  not_used<1> to_33;
  ort_status* (*input_type)(const ort_session*, std::size_t, ort_type_info**);
  ort_status* (*output_type)(const ort_session*, std::size_t, ort_type_info**);
  not_used<1> to_36;
  ort_status* (*input_name)(const ort_session*, std::size_t, ort_allocator*, char**);
  ort_status* (*output_name)(const ort_session*, std::size_t, ort_allocator*, char**);
  not_used<1> to_39;
  ort_status* (*create_run_options)(ort_run_options**);
  not_used<6> to_46;
  ort_status* (*set_terminate)(ort_run_options*);
  ort_status* (*unset_terminate)(ort_run_options*);
  ort_status* (*create_tensor)(ort_allocator*, const std::int64_t* shape, std::size_t rank,
                               int element, ort_value**);
  ort_status* (*create_tensor_with_data)(const ort_memory_info*, void*, std::size_t bytes,
                                         const std::int64_t* shape, std::size_t rank, int element,
                                         ort_value**);
  not_used<1> to_51;
  ort_status* (*tensor_data)(ort_value*, void**);
  not_used<1> to_53;
  ort_status* (*length_of_strings)(const ort_value*, std::size_t*);
  ort_status* (*read_strings)(const ort_value*, void* to, std::size_t bytes, std::size_t* starts,
                              std::size_t count);
  ort_status* (*as_tensor_info)(const ort_type_info*, const ort_tensor_info**);  // Do not release.
  ort_status* (*kind_of)(const ort_type_info*, int*);
  not_used<3> to_60;
  ort_status* (*element_of)(const ort_tensor_info*, int*);
  ort_status* (*rank_of)(const ort_tensor_info*, std::size_t*);
  ort_status* (*dimensions_of)(const ort_tensor_info*, std::int64_t*, std::size_t);
  ort_status* (*dimension_names_of)(const ort_tensor_info*, const char**, std::size_t);
  not_used<1> to_65;
  ort_status* (*tensor_info_of)(const ort_value*, ort_tensor_info**);
  not_used<3> to_69;
  ort_status* (*create_cpu_memory_info)(int allocator, int memory, ort_memory_info**);
  not_used<6> to_76;
  ort_status* (*allocator_free)(ort_allocator*, void*);
  not_used<1> to_78;
  ort_status* (*default_allocator)(ort_allocator**);
  not_used<13> to_92;
  void (*release_env)(ort_env*);
  void (*release_status)(ort_status*);
  void (*release_memory_info)(ort_memory_info*);
  void (*release_session)(ort_session*);
  void (*release_value)(ort_value*);
  void (*release_run_options)(ort_run_options*);
  void (*release_type_info)(ort_type_info*);
  void (*release_tensor_info)(ort_tensor_info*);
  void (*release_session_options)(ort_session_options*);
  not_used<29> to_130;
  ort_status* (*add_session_entry)(ort_session_options*, const char* key, const char* value);
  not_used<73> to_204;  // The rest only in tables since cuda_api_version.
  ort_status* (*append_cuda)(ort_session_options*, const ort_cuda_options*);
  ort_status* (*create_cuda_options)(ort_cuda_options**);
  ort_status* (*update_cuda_options)(ort_cuda_options*, const char* const* keys,
                                     const char* const* values, std::size_t);
  not_used<1> to_208;
  void (*release_cuda_options)(ort_cuda_options*);
  not_used<43> to_252;  // The rest only in tables since strings_api_version.
  /// Allocates `bytes` bytes for an element of a tensor of strings.
  ort_status* (*string_room)(ort_value*, std::size_t place, std::size_t bytes, char**);
};

/// Position of each group's first function in the table, by name.
constexpr bool is_at(std::size_t offset, std::size_t place) {
  return offset == place * sizeof(void (*)());
}
static_assert(is_at(offsetof(ort_api, error_message), 2));
static_assert(is_at(offsetof(ort_api, create_session), 7));
static_assert(is_at(offsetof(ort_api, run), 9));
static_assert(is_at(offsetof(ort_api, set_execution_mode), 13));
static_assert(is_at(offsetof(ort_api, disable_memory_plans), 17));
static_assert(is_at(offsetof(ort_api, set_log_severity), 22));
static_assert(is_at(offsetof(ort_api, set_intra_op_threads), 24));
static_assert(is_at(offsetof(ort_api, input_count), 30));
static_assert(is_at(offsetof(ort_api, input_type), 33));
static_assert(is_at(offsetof(ort_api, input_name), 36));
static_assert(is_at(offsetof(ort_api, create_run_options), 39));
static_assert(is_at(offsetof(ort_api, set_terminate), 46));
static_assert(is_at(offsetof(ort_api, unset_terminate), 47));
static_assert(is_at(offsetof(ort_api, create_tensor), 48));
static_assert(is_at(offsetof(ort_api, create_tensor_with_data), 49));
static_assert(is_at(offsetof(ort_api, tensor_data), 51));
static_assert(is_at(offsetof(ort_api, length_of_strings), 53));
static_assert(is_at(offsetof(ort_api, as_tensor_info), 55));
static_assert(is_at(offsetof(ort_api, element_of), 60));
static_assert(is_at(offsetof(ort_api, tensor_info_of), 65));
static_assert(is_at(offsetof(ort_api, create_cpu_memory_info), 69));
static_assert(is_at(offsetof(ort_api, allocator_free), 76));
static_assert(is_at(offsetof(ort_api, default_allocator), 78));
static_assert(is_at(offsetof(ort_api, release_env), 92));
static_assert(is_at(offsetof(ort_api, release_run_options), 97));
static_assert(is_at(offsetof(ort_api, release_type_info), 98));
static_assert(is_at(offsetof(ort_api, add_session_entry), 130));
static_assert(is_at(offsetof(ort_api, append_cuda), 204));
static_assert(is_at(offsetof(ort_api, release_cuda_options), 208));
static_assert(is_at(offsetof(ort_api, string_room), 252));

/// The library's export, with access to the table.
struct ort_api_base {
  const ort_api* (*get_api)(std::uint32_t version);
  const char* (*version)();  // "1.30.0": its minor version is that of the table.
};
using get_api_base = const ort_api_base* (*)();
inline constexpr const char* entry_point = "OrtGetApiBase";

}  // namespace cohort::runtime::onnx::detail
