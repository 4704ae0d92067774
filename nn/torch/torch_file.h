#pragma once

#include <filesystem>

#include "nn/torch/weight_parts.h"
#include "tensor/state_dict.h"

namespace athanor::torch_file {

/// Whether a file looks like one of torch.save(): a zip file or a pickle. Throws IoError if it cannot be
/// opened.
bool is_torch_file(const std::filesystem::path& path);

/// Reads the tensors of a torch.save() file, `.pth`, `.pt` or `.ckpt`, of PyTorch 1.6 and later (a zip file)
/// or of the older form. They come from the saved dictionary or from the weights of a training checkpoint:
/// its entries "state_dict", "model", "model_state_dict" and so on that hold tensors, or else any such entry.
/// Running averages ("model_ema", also those that a callback of Lightning's keeps below "callbacks") come
/// first, or last if `averages` is false. `parts`: all of these, of which the first is read; without names:
/// the dictionary itself. Names, layouts and dtypes (f64 f32 f16 bf16 i64 i32 u8; bool as u8) are the file's.
///
/// Nothing in the file is executed or trusted. Whatever is not a tensor (numbers, a Namespace, arrays of
/// NumPy, objects of any class) is skipped; every size, stride and offset is checked. Tensors are views of
/// the file in memory, possibly strided. Storages misaligned for their dtype are copied, in total at most the
/// size of the file. Throws IoError naming the file, the byte and what was expected there, also if the
/// weights have a tensor that is not dense or of another dtype.
StateDict load(const std::filesystem::path& path, WeightParts* parts = nullptr, bool averages = true);

}  // namespace athanor::torch_file
