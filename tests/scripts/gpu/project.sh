# Sourced: a project in $folder/project whose scripts are real and whose compiler, libraries and build are made up.
mkdir -p "$folder"/{path,project,programs,toolkit/{bin,include,lib64},cudnn/{include,lib}}
cp -r "$here/../../scripts" "$folder/project/scripts"
printf '#!/bin/sh\n' | tee "$folder/project/scripts/install_packages.sh" >"$folder/toolkit/bin/nvcc"
chmod +x "$folder/toolkit/bin/nvcc"
touch "$folder/toolkit/include/cublasLt.h" "$folder/cudnn/include/cudnn_backend.h" "$folder/cudnn/lib/libcudnn.so.9"
ln -s "$here"/gpu/{cmake,nvidia-smi,compute-sanitizer,ncu} "$folder/path/"
export PATH=$folder/path:$PATH NVIDIA_PROC=$folder/none FAKE_PROGRAMS=$folder/programs
export CUDA_HOME=$folder/toolkit CUDNN_ROOT=$folder/cudnn
unset ATHANOR_DATA_DIR
export ATHANOR_PEERS_VENV=$folder/venv # none, but where a test makes one
