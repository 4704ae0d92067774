import numpy as np
from sklearn.metrics import precision_score, recall_score, f1_score, jaccard_score, accuracy_score, top_k_accuracy_score, mean_absolute_error
# The numbers of tests/trainer/metric_sums_test.cpp, and what scikit-learn makes of them: pip install scikit-learn
# A linear congruential generator, exact in integers.
def lcg(seed):
    x=seed
    while True:
        x=(x*1664525+1013904223)%2**32
        yield x>>16
g=lcg(7)
N,C=203,6
logits=np.array([[next(g)%1000 for _ in range(C)] for _ in range(N)],dtype=float)
logits=logits+np.arange(C)/16   # no ties
target=np.array([next(g)%5 if next(g)%7 else 5 for _ in range(N)])
pred=logits.argmax(1)
pred4=np.where(pred==4,3,pred)
print('top', [round(top_k_accuracy_score(target,logits,k=k,labels=range(C)),15) for k in (1,2,3)])
for p,name in ((pred,'pred'),(pred4,'pred4')):
    print(name, repr(accuracy_score(target,p)))
    for f,nm in ((precision_score,'precision'),(recall_score,'recall'),(f1_score,'f1'),(jaccard_score,'iou')):
        print(nm, repr(float(f(target,p,average='macro',zero_division=0))), [float(v) for v in f(target,p,average=None,zero_division=0,labels=range(C))])
print('mae', repr(float(mean_absolute_error(logits[:,0]/1000,logits[:,1]/1000))))
